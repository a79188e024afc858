"""The pass log: runs and times each pass, and shows how it changed the text of the program.

It prints if `verbose`, and logs at DEBUG: TORCH_LOGS=+weft shows each pass and its time.

log = PassLog(verbose=2, out=sys.stdout)
graph = log.run("n", "002_simplify", lambda g: simplify(g, log.fired), graph, print_graph)
log.seconds["n"]                      # compile time of the level, for the report
"""

import difflib
import inspect
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, TextIO, TypeVar

P = TypeVar("P")
Passes = tuple[tuple[str, Callable[..., Any]], ...]  # in order, each with its number and name
logger = logging.getLogger(__name__)


@dataclass
class PassLog:
    """Runs passes and records their times. verbose=1 prints a line per pass, 2 also its diff."""

    verbose: int = 0
    out: TextIO = field(default_factory=lambda: sys.stdout)
    seconds: dict[str, float] = field(default_factory=dict[str, float])  # by the level's letter
    fired: Counter[str] = field(default_factory=Counter[str])  # how often each rule fired

    def run(
        self, level: str, name: str, change: Callable[[P], P], program: P, text: Callable[[P], str]
    ) -> P:
        """Runs the pass `change` and returns its result.

        `level` is a letter ("t"), `name` has a number ("007_stage_inputs") or is "" for a step that
        is not shown, and `text` prints a program for the diff.
        """
        fired = self.fired.copy()
        before = self.seconds.get(level, 0.0)
        after = self.time(level, lambda: change(program))
        if name and (self.verbose or logger.isEnabledFor(logging.DEBUG)):
            spent = self.seconds[level] - before
            old, new = (text(p).splitlines() for p in (program, after))
            lines = list(difflib.unified_diff(old, new, lineterm=""))
            self._show(f"{level}:{name}", spent, lines, self.fired - fired)
        return after

    def time(self, level: str, work: Callable[[], P]) -> P:
        """Times work that is no pass (lowering, the C compiler); its seconds count to the level."""
        start = time.perf_counter()
        result = work()
        self.seconds[level] = self.seconds.get(level, 0.0) + time.perf_counter() - start
        return result

    def show_choices(self, text: str) -> None:
        """What a schedule chose, and the other options, where passes are shown."""
        logger.debug("%s", text)
        if self.verbose:
            print(text, end="", file=self.out)

    def _show(self, name: str, spent: float, lines: list[str], fired: Counter[str]) -> None:
        changed = sum(line[0] in "+-" for line in lines[2:])  # after the two header lines
        what = f"{changed} lines changed" if changed else "no change"
        rules = ", ".join(f"{rule} x{n}" for rule, n in fired.most_common())
        line = f"{name:<32} {spent * 1e3:8.2f} ms  {what}"
        logger.debug("%s%s", line, f"; {rules}" if rules else "")
        if not self.verbose:
            return
        print(line, file=self.out)
        if rules:
            print(f"    {rules}", file=self.out)
        if self.verbose > 1 and lines:
            print(f">>> {name}", *lines[2:], f"<<< {name}", sep="\n", file=self.out)


def numbered(folder: str, *passes: str, first: int = 1) -> Passes:
    """Passes in the order in which they run, as (001_tileify, its function), ...

    A pass is named by its module, or by a folder and its module; its function is named alike.
    """
    found = [(p.rpartition(".")[2], import_module(f"{folder}.{p}")) for p in passes]
    return tuple((f"{i:03}_{n}", getattr(m, n)) for i, (n, m) in enumerate(found, first))


signature = cache(inspect.signature)


def call_by_name(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Calls the function with the values that its parameters name."""
    return function(*(values[p] for p in signature(function).parameters))
