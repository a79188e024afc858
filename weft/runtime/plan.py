"""The memory plan: temporaries packed into one arena so that two that live together never overlap.

plan([Slot("a", 256, 0, 1), Slot("b", 64, 1, 2), Slot("c", 256, 2, 3)])
# Plan(offsets={"a": 0, "c": 0, "b": 256}, total=320): c takes the place of a
"""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True)
class Slot:
    """A temporary of `bytes`, alive from step `first` to step `last`, both included."""

    name: str
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """Where each temporary starts in the arena, and how large the arena is."""

    offsets: dict[str, int]
    total: int


def align(size: int) -> int:
    """`size` rounded up to the alignment; an empty temporary still gets an address of its own."""
    return max(1, -(-size // ALIGNMENT)) * ALIGNMENT


def plan(slots: Iterable[Slot]) -> Plan:
    """Place the largest first, each into the tightest gap between those alive at the same time."""
    placed: list[tuple[int, int, int, int]] = []  # start, end, first, last; ordered by start
    offsets: dict[str, int] = {}
    for slot in sorted(slots, key=lambda s: (-s.bytes, s.first, s.name)):
        size = align(slot.bytes)
        alive = [(p[0], p[1]) for p in placed if p[2] <= slot.last and slot.first <= p[3]]
        start = tightest_gap(alive, size)
        offsets[slot.name] = start
        insort(placed, (start, start + size, slot.first, slot.last))
    return Plan(offsets, max((p[1] for p in placed), default=0))


def tightest_gap(taken: list[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap of at least `size` in ranges ordered by start, or their end."""
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, stop)
    return end if best is None else best[1]
