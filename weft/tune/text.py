"""The text of a schedule: a line for each choice of a kernel.

read_schedule("softmax.vectors = 4")        # {"softmax": {"vectors": "4"}}, as Chooser takes it
show_schedule(chooser)                      # "softmax.vectors = 4  # 2 1 8"
"""

import re
from collections.abc import Mapping

from weft.core.errors import WeftError
from weft.scalar.choices import MOVE, Chooser, Decisions

LINE = re.compile(r"(\*|\w+)\.([\w.]+)\s*=\s*(\S+)")


def read_schedule(text: str) -> dict[str, dict[str, str]]:
    """Decisions by kernel and choice, of all lines but moves; WeftError for a line that is none."""
    found: dict[str, dict[str, str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.partition("#")[0].strip()
        if not plain or MOVE.match(plain):  # tile/moves/script.py reads those
            continue
        matched = LINE.fullmatch(plain)
        if matched is None:
            told = "kernel.choice = option is wanted, as in softmax.vectors = 4"
            raise WeftError(f"schedule line {number}, {plain!r}: {told}")
        kernel, name, option = matched.groups()
        found.setdefault(kernel, {})[name] = option
    return found


def show_schedule(chooser: Chooser) -> str:
    """What was chosen, which replays it; a comment has the other options. Moves are last."""
    lines = [
        (f"{kernel}.{name} = {found.taken}", [o for o in found.options if o != found.taken])
        for kernel, choices in chooser.kernels.items()
        for name, found in choices.met.items()
        if len(found.options) > 1
    ]
    width = max((len(line) for line, _ in lines), default=0)
    moves = [f"{k}: {move}\n" for k in chooser.kernels for move in chooser.moves.get(k, ())]
    shown = (f"{line:<{width}}  # {' '.join(others)}\n" for line, others in lines)
    return "".join((*shown, *moves))


def write_schedule(schedule: Mapping[str, Decisions]) -> str:
    """Decisions by kernel, as `read_schedule` reads them."""
    return "".join(f"{k}.{name} = {o}\n" for k, own in schedule.items() for name, o in own.items())
