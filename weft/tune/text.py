"""The text of a schedule: a line for each choice of a kernel.

read_schedule("softmax.vectors = 4")        # {"softmax": {"vectors": "4"}}, as Chooser takes it
show_schedule(chooser)                      # "softmax.vectors = 4  # 2 1 8"
"""

import re
from collections.abc import Mapping

from weft.core.errors import WeftError
from weft.scalar.choices import Chooser, Decisions

LINE = re.compile(r"(\*|\w+)\.([\w.]+)\s*=\s*(\S+)")


def read_schedule(text: str) -> dict[str, dict[str, str]]:
    """Decisions by kernel and choice; WeftError for a line that is none."""
    found: dict[str, dict[str, str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not (plain := line.partition("#")[0].strip()):
            continue
        matched = LINE.fullmatch(plain)
        if matched is None:
            told = "kernel.choice = option is wanted, as in softmax.vectors = 4"
            raise WeftError(f"schedule line {number}, {plain!r}: {told}")
        kernel, name, option = matched.groups()
        found.setdefault(kernel, {})[name] = option
    return found


def show_schedule(chooser: Chooser) -> str:
    """What was chosen, which replays it; a comment has the other options of a choice."""
    lines = [
        (f"{kernel}.{name} = {found.taken}", [o for o in found.options if o != found.taken])
        for kernel, choices in chooser.kernels.items()
        for name, found in choices.met.items()
        if len(found.options) > 1
    ]
    width = max((len(line) for line, _ in lines), default=0)
    return "".join(f"{line:<{width}}  # {' '.join(others)}\n" for line, others in lines)


def write_schedule(schedule: Mapping[str, Decisions]) -> str:
    """Decisions by kernel, as `read_schedule` reads them."""
    return "".join(f"{k}.{name} = {o}\n" for k, own in schedule.items() for name, o in own.items())
