"""How much work a function does, the same on every machine and under any load.

calls(lambda: simplify(graph))      # how many Python functions it calls
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(run: Callable[[], Any]) -> int:
    """Calls of Python functions; those of C are not counted."""
    count, before = 0, sys.getprofile()

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
