"""The text form: tokens, attributes, graphs, levels. weft/text.py reads and prints all levels.

with located(text, "<text>"):       # an error of the verifier gets a line of the text
    verify(program)
"""

import re
from collections.abc import Generator
from contextlib import contextmanager

from weft.core.errors import VerifyError


@contextmanager
def located(text: str, filename: str) -> Generator[None, None, None]:
    """Adds to a VerifyError the line that declares the kernel or value which its message names."""
    try:
        yield
    except VerifyError as error:
        if error.where is not None:
            raise
        named = re.match(r"kernel (\w+)|(\w+)", error.message)
        declares = rf"kernel {named[1]}\(|(input )?{named[2]}\b" if named else "program "
        lines = enumerate(text.split("\n"), 1)
        where = (f"{filename} line {i}: {line}" for i, line in lines if re.match(declares, line))
        raise VerifyError(error.message, next(where, filename)) from None
