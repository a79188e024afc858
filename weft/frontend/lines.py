"""Lines of a program's source, as errors and kernels name them: "model.py line 12: y = f(x)"."""

import linecache
import re
from pathlib import Path

import torch

# Frames of these are not the user's.
_LIBRARY = (str(Path(torch.__file__).parent), str(Path(__file__).parent.parent))


def innermost_line(stack: str | None, library: bool = False) -> str | None:
    """The program's innermost line in 'File "a.py", line 3, in f' lines, as "a.py line 3: code".

    With `library`, a line of torch's own where the program has none.
    """
    frames = re.findall(r'File "(.*?)", line (\d+)', stack or "")
    for own in (False, True)[: 1 + library]:
        for name, number in reversed(frames):
            line = program_line(name, int(number), own)
            if line is not None:
                return line
    return None


def program_line(filename: str, number: int, library: bool = False) -> str | None:
    """A line of source as a place; None for a line of torch or weft, unless `library` is set."""
    if filename[0] == "<" or (filename.startswith(_LIBRARY) and not library):
        return None
    line = linecache.getline(filename, number).strip()
    return f"{Path(filename).name} line {number}: {line}"
