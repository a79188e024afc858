"""A pass log that keeps what it is shown: the diff of every pass, and what the search found.

log = Recording()
levels = lower(graph, options, log, known)
log.passes[0].name, log.passes[0].diff, log.regions, log.groups
"""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from weft.core.passes import PassLog
from weft.scalar.nest import Program
from weft.scalar.structure import is_same
from weft.tensor.groups import Group

P = TypeVar("P")

# The modules of passes that are handed over without their function.
MODULES = {
    "simplify": "weft.tensor.rules",
    "search": "weft.search.search",
    "fold_in_one_pass": "weft.tensor.statistics",
    "pair_bf16": "weft.tensor.pairs",
    "trim_scatters": "weft.tensor.trims",
    "join_slices": "weft.tensor.slices",
}


@dataclass
class Pass:
    """One pass: what it is for, its time, the rules that fired, and the kernels it changed."""

    name: str
    about: str
    ms: float
    rules: dict[str, int]
    diff: list[str]
    kernels: list[str]


@dataclass
class Recording(PassLog):
    """Records in place of printing; `groups` are those of `grouped`, the first loop program."""

    verbose: int = 2  # the search tells its regions only to whom passes are shown in full
    passes: list[Pass] = field(default_factory=list[Pass])
    regions: list[str] = field(default_factory=list[str])  # as the search tells them
    groups: list[Group] = field(default_factory=list[Group])
    grouped: Program | None = None
    current: tuple[str, list[str]] = "", []  # of the pass that runs: what it is for, its kernels

    def run(
        self, level: str, name: str, change: Callable[[P], P], program: P, text: Callable[[P], str]
    ) -> P:
        made: list[P] = []

        def told(given: P) -> P:
            made.append(change(given))
            self.current = about(name, change), changed(given, made[0])
            return made[0]

        if isinstance(change, partial) and "groups" in change.keywords:
            after = super().run(level, name, told, program, text)
            self.groups, self.grouped = change.keywords["groups"], after  # type: ignore[assignment]
            return after
        return super().run(level, name, told, program, text)

    def show_choices(self, text: str) -> None:
        if text.startswith("region "):
            self.regions.append(text.removeprefix("region ").rstrip("\n"))

    def _show(self, name: str, spent: float, lines: list[str], fired: Counter[str]) -> None:
        what, kernels = self.current
        rules = dict(fired.most_common())
        self.passes.append(Pass(name, what, spent * 1e3, rules, lines[2:], kernels))


def about(name: str, change: Any) -> str:
    """What a pass is for: the first sentence of its module."""
    keywords: Any = change.keywords if isinstance(change, partial) else {}
    step: Any = keywords.get("step")
    while isinstance(step, partial):
        step = step.func
    module = getattr(step, "__module__", None) or MODULES.get(name[4:], "")
    text = getattr(sys.modules.get(module), "__doc__", None) or ""
    return " ".join(text.partition("\n\n")[0].split())


def changed(old: Any, new: Any) -> list[str]:
    """The kernels of a program that a pass made, changed or took away, by name."""
    if not (isinstance(old, Program) and isinstance(new, Program)):
        return []
    before, after = ({k.name: k for k in p.kernels} for p in (old, new))
    gone = [name for name in before if name not in after]
    return gone + [
        name for name, k in after.items()
        if name not in before or not is_same(before[name].body, k.body)
    ]  # fmt: skip
