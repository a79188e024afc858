"""For which sizes a program for any size is used: where its schedule is near the best.

key, ranges = within(key, {"s0": 13}, lambda: {n: (2, 31)})     # {"s0": (2, 31)}
run = Ranged(run, ranges, ("s0",), make)                        # of 64 rows: make({"s0": 64})

The ranges follow from prices, which are known once the program is lowered; the cache notes them
by the program's key, so that a later process finds the program without that.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from weft.config import config
from weft.core.node import Graph
from weft.runtime.cache import Cache
from weft.runtime.sizes import value
from weft.scalar.ops import Symbol
from weft.scalar.resize import sizes_of, with_hints
from weft.scalar.sizes import Size

log = logging.getLogger(__name__)

Ranges = dict[str, tuple[int, int]]  # by size, such as s0 * s1
Runner = Callable[[Sequence[Any]], Any]
TUPLES = 1024  # so many tuples of sizes are known, at most


def holds(ranges: Ranges, numbers: Mapping[str, int]) -> bool:
    """Whether sizes are within the ranges, given the numbers that symbols are."""
    places = ((value(size, numbers), *ends) for size, ends in ranges.items())
    return all(low <= n <= high for n, low, high in places)


def within(
    key: str,
    met: Mapping[str, int],
    make: Callable[[], Mapping[Size, tuple[int, int]]],
    cached: bool = True,
) -> tuple[str, Ranges]:
    """The key of the program for the ranges that hold the sizes which were met, and these."""
    if not met:
        return key, {}
    cache = Cache(config.cache)
    known = cache.notes(key) if cached else ()
    ranges = next((r for r in known if holds(r, met)), None)
    if ranges is None:
        ranges = {str(size): ends for size, ends in make().items()}
        assert holds(ranges, met), f"the program is for {ranges}, but {met} was met"
        cache.note(key, ranges)
    return f"{key} {json.dumps(ranges)}", ranges


def told(ranges: Ranges, symbols: Iterable[Symbol]) -> list[str]:
    """The ranges of all sizes in words: "s0: 2..31 near 13"."""
    whole = {s.label: (s.low, s.high) for s in symbols}
    hints = {s.label: s.hint for s in symbols}
    return [
        f"{size}: {low}..{high} near {value(size, hints)}"
        for size, (low, high) in {**whole, **ranges}.items()
    ]


def in_ranges(graph: Graph, build: Callable[[Graph], tuple[Runner, Ranges]]) -> Runner:
    """What runs a graph, by a program near its hints and others for sizes beyond its ranges."""
    first, ranges = build(graph)
    if not ranges:
        return first
    artifact: Any = first.artifact  # type: ignore[attr-defined]

    def make(met: dict[str, int]) -> tuple[Runner, Ranges]:
        run, beyond = build(with_hints(graph, met))
        artifact.others.append(run.artifact)  # type: ignore[attr-defined]
        return run, beyond

    return Ranged(graph.name, first, ranges, [*sizes_of(graph)], make, artifact)


class Ranged:
    """What runs a graph for any size: several programs, each made when its ranges are first met.

    The last of a call's inputs are the sizes, of these labels. What `make` raises, a call raises.
    """

    def __init__(
        self,
        name: str,
        first: Runner,
        ranges: Ranges,
        labels: Sequence[str],
        make: Callable[[dict[str, int]], tuple[Runner, Ranges]],
        artifact: Any = None,
    ) -> None:
        self.name, self.labels, self.make = name, labels, make
        self.made = [(first, ranges)]
        self.known: dict[tuple[int, ...], Runner] = {}
        self.lock, self.artifact = Lock(), artifact

    def __call__(self, inputs: Sequence[Any]) -> Any:
        sizes = tuple(inputs[-len(self.labels) :])
        run = self.known.get(sizes) or self._find(sizes)
        return run(inputs)

    def _find(self, sizes: tuple[int, ...]) -> Runner:
        numbers = dict(zip(self.labels, sizes, strict=True))
        with self.lock:  # two threads that meet a range at once make one program
            found = next((run for run, ranges in self.made if holds(ranges, numbers)), None)
            if found is None:
                self._tell(numbers)
                self.made.append(self.make(numbers))
                found = self.made[-1][0]
            if len(self.known) >= TUPLES:
                self.known.clear()
            return self.known.setdefault(sizes, found)

    def _tell(self, numbers: Mapping[str, int]) -> None:
        met = ", ".join(f"{label} = {n}" for label, n in numbers.items())
        ends = [f"{n} in {a}..{b}" for _, ranges in self.made for n, (a, b) in ranges.items()]
        told = "%s is compiled again for %s: others are for %s"
        log.info(told, self.name, met, "; ".join(ends))
