"""The choices of a schedule: every one between options goes through `pick`.

choices = Choices({"vectors": "4"})
choices.pick("vectors", (1, 2, 4), price)       # 4, whatever the price; else the cheapest
choices.met["vectors"]                          # Choice(options=("2", "1", "4"), taken="4")

A kernel's choices are named, the second of a name `vectors.2`; replayed by name, as in TVM's traces
(Shao et al., Tensor Program Optimization with Probabilistic Programs, 2022).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from weft.core.errors import WeftError, choice
from weft.core.node import Graph
from weft.scalar.nest import Kernel

T = TypeVar("T")
FUSIONS = ("inline.", "join.", "merge.")  # what the choices of a program begin with
Decisions = Mapping[str, str]  # of one kernel: options by choice
MOVE = re.compile(r"\s*\w+\s*:")  # what a line of a schedule that is a move begins with


class Choice(NamedTuple):
    """What could be chosen, cheapest first, and what was taken."""

    options: tuple[str, ...]
    taken: str


@dataclass
class Choices:
    """The choices of one kernel, met in order: `decided` by name, or else the cheapest.

    WeftError for a decision that is no option; of those `known` from earlier, it is passed over.
    """

    decided: Decisions = field(default_factory=dict[str, str])
    known: Decisions = field(default_factory=dict[str, str])
    met: dict[str, Choice] = field(default_factory=dict[str, Choice])
    kernel: str = "kernel"
    declined: dict[str, None] = field(default_factory=dict[str, None])  # fusions; all are legal
    prices: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    saved: dict[str, float] = field(default_factory=dict[str, float])  # us, by fusions as settled

    def pick(self, name: str, options: Iterable[T], price: Callable[[T], Any]) -> T:
        """The option decided for this choice, or the first of the least price."""
        priced = sorted(((price(option), option) for option in options), key=itemgetter(0))
        ranked = {_text(option): option for _, option in priced}
        if name in self.met:
            name = next(n for i in range(2, 1 << 20) if (n := f"{name}.{i}") not in self.met)
        taken = self.decided.get(name) or self.known.get(name)
        if name in self.decided:
            choice(f"{self.kernel}.{name}", self.decided[name], ranked)
        if taken not in ranked:
            taken = next(iter(ranked))
        self.met[name] = Choice(tuple(ranked), taken)
        self.prices[name] = {_text(option): found for found, option in reversed(priced)}
        return ranked[taken]

    def decide(self, name: str, default: bool) -> bool:
        """Yes or no, where yes is right and `default` thought best."""
        return self.pick(name, (default, not default), lambda option: option is not default)

    def settle(self, name: str, saved: float) -> bool:
        """`decide` on what is thought best, and may be asked again: the last answer counts.

        What is never thought best is no choice until it is `wanted`: there is too much of it.
        """
        self.met.pop(name, None)
        self.saved[name] = saved
        return self.decide(name, True)

    def wanted(self, name: str) -> bool:
        """Whether yes was decided for what was never thought best."""
        if name in self.met:
            return False
        self.declined[name] = None
        asked = self.decided.get(name) or self.known.get(name)
        return asked == "yes" and self.decide(name, False)


def _text(option: Any) -> str:
    if isinstance(option, bool):
        return "yes" if option else "no"
    return "x".join(map(str, option)) if isinstance(option, tuple) else str(option)


@dataclass
class Chooser:
    """The choices of a program's kernels, by name.

    `decided` is what a schedule's text says, that of "*" for every kernel that has such an option;
    `known` is what of a kernel, or of a program, was found by measuring. `name` stands for the
    whole program: of those that a function may have, each passes over the lines of the others.
    """

    decided: Mapping[str, Decisions] = field(default_factory=dict[str, Decisions])
    known: Callable[[Kernel | Graph], Decisions] = lambda kernel: {}
    kernels: dict[str, Choices] = field(default_factory=dict[str, Choices])
    name: str = "program"
    # Of the kernels that are scheduled by hand, in place of choices.
    moves: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])

    def of(self, kernel: Kernel) -> Choices:
        """Those of the kernel, which is at the loop level when it is first met."""
        return self.kernels.get(kernel.name) or self._begun(kernel.name, self.known(kernel))

    @property
    def program(self) -> Choices:
        """Those of the whole program: which kernels it has."""
        return self.kernels.get(self.name) or self._begun(self.name, {})

    def begin(self, program: Graph, searched: bool) -> None:
        """Name the program, as fusion meets it, by its first output; take what is known of it."""
        self.name = "_".join(["program", *(program.names.get(n, "0") for n in program.outputs[:1])])
        self._begun(self.name, self.known(program) if searched else {})

    def _begun(self, name: str, known: Decisions) -> Choices:
        known = {**known, **self.decided.get("*", {})}
        self.kernels[name] = Choices(self.decided.get(name, {}), known, {}, name)
        return self.kernels[name]

    def checked(self) -> Chooser:
        """Itself; WeftError where a kernel has no choice of a name that was decided for it.

        A fusion that is not to be, and never was to be, is none.
        """
        for kernel, choices in self.kernels.items():
            for name, option in self.decided.get(kernel, {}).items():
                told = f"kernel {kernel} has moves, so it has no choices: leave out {kernel}.{name}"
                if kernel in self.moves:
                    raise WeftError(told)
                if option != "no" or not name.startswith(FUSIONS):
                    choice(f"choice of kernel {kernel}", name, choices.met)
        return self
