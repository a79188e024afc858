"""Where the schedule of a program for any size is good: what it costs there, beside the best one.

good_ranges(kernels, target)     # {s0 * s1: (4, 31)}, where the schedule is one for few rows

A contraction of few rows is computed by dot products, one of many from packed panels: each is slow
where the other is fast. Many short sums have no blocks, which long ones need for their precision.
All else that the hint decides differs less.
"""

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from weft.core.types import f32
from weft.scalar.intervals import bounds
from weft.scalar.monoid import SUM, WELFORD
from weft.scalar.nest import Block, For, Kernel
from weft.scalar.ops import Symbol, constant, make
from weft.scalar.sizes import Size, hint
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, contraction, span, trips
from weft.tile.moves.join import collapse
from weft.tile.price.products import DotTile, dot_tile, dots_cost, panels_cost

STEPS = (8, 32, 128, 512)  # rows at which a range may begin
TOP = 2048  # rows beyond which schedules compare as they do there
NEAR = 1.1  # times as long as with the best schedule
CALL_US = 10.0  # what a call takes in any case
SHORT = 4096  # numbers that a sum without blocks adds at most
MANY = 4096  # iterations of loops around sums, where a size decides
BLOCKS_NS = 2.0  # what the blocks of a sum take where there is one of them


def good_ranges(kernels: Iterable[Kernel], target: Machine) -> dict[Size, tuple[int, int]]:
    """By number of rows or of summands that is a size: the range around its hint that is good."""
    nests = nests_of(kernels)
    found = [c for c, _ in nests if isinstance(c, Contraction)]
    sums = [(n, times) for s, times in nests for n in _summed(s) if isinstance(n, Size)]
    sizes = {c.rows.hi: span(c.rows) for c in found if c.rows.lo is constant(0)}
    ranges = {n: _around(n, found, target) for n in sizes.values() if isinstance(n, Size)}
    for n in dict.fromkeys(n for n, _ in sums):
        low, high = _of_sum(n, sum(times for size, times in sums if size == n), target)
        least, most = ranges.get(n, (low, high))
        ranges[n] = max(low, least), min(high, most)
    return {n: ends for n, ends in ranges.items() if ends != _bounds(n)}


def nests_of(kernels: Iterable[Kernel]) -> list[tuple[Contraction | For, int]]:
    return [n for k in kernels for n in _nests(collapse(k.body))]


def _nests(block: Block, times: int = 1) -> Iterator[tuple[Contraction | For, int]]:
    """Contractions with how many sums each is, and all other loops with how often each runs, at
    sizes that are large.
    """
    for stmt in block:
        if isinstance(stmt, For):
            found = contraction(stmt)
            each = trips(found.rows) * trips(found.columns) if found else 1
            yield found or stmt, times * each
            if found is None:
                yield from _nests(stmt.body, times * (stmt.extent or MANY))


def _summed(nest: Contraction | For) -> Iterator[int | Size | None]:
    """How many floats the sums of a nest add, one by one."""
    for stmt in nest.reduce if isinstance(nest, Contraction) else (nest,):
        if any(f.monoid in (SUM, WELFORD) and f.dtypes[0].is_float for f in stmt.folds):
            yield span(stmt)


def _of_sum(n: Size, times: int, target: Machine) -> tuple[int, int]:
    """Where a sum of a size has no blocks, or has them; all sizes if they cost little in any case.

    The ranges do not overlap, so that a size tells which of two programs the cache has for it.
    """
    low, high = _bounds(n)
    others_ns = CALL_US * 1e3 * target.cores / times
    others_ns += low / target.lanes(f32.bytes) / target.vector_ops_per_ns
    if (NEAR - 1) * others_ns >= BLOCKS_NS:
        return low, high
    return (low, min(high, SHORT)) if hint(n) <= SHORT else (SHORT + 1, high)


def _around(rows: Size, found: Sequence[Contraction], target: Machine) -> tuple[int, int]:
    """The steps of the range of a size over which the schedule at its hint is near the best."""
    low, high = _bounds(rows)
    starts = [low, *(n for n in STEPS if low < n <= high), high + 1]
    chosen = [(c, dot_tile(c, target)) for c in found]
    moving = [(c, tile) for c, tile in chosen if span(c.rows) == rows]
    rest = CALL_US * target.vector_ops_per_ns * 1e3 * target.cores
    rest += sum(_cost(c, tile, target) for c, tile in chosen if span(c.rows) != rows)

    def is_slow(n: int) -> bool:
        count = make(Symbol("rows", low, high, min(n, TOP)))
        here = [(replace(c, rows=replace(c.rows, hi=count)), tile) for c, tile in moving]
        best = rest + sum(_cost(c, dot_tile(c, target), target) for c, _ in here)
        return rest + sum(_cost(*pair, target) for pair in here) > NEAR * best

    at = bisect(starts, hint(rows)) - 1
    first = next((i for i in range(at, 0, -1) if is_slow(starts[i - 1])), 0)
    last = next((i for i, n in enumerate(starts[at + 2 :], at + 1) if is_slow(n - 1)), -1)
    return starts[first], starts[last] - 1


def _bounds(rows: Size) -> tuple[int, int]:
    low, high = bounds(rows.term, {})
    return int(max(low, 1)), int(min(high, 1 << 62))


def _cost(c: Contraction, tile: DotTile | None, target: Machine) -> float:
    return dots_cost(c, target)(tile.rows, tile.columns) if tile else panels_cost(c, target)
