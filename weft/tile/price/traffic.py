"""The bytes that a nest moves between memory and the cache that holds its working set.

moved(body, cache)      # {x: 16384.0, y: 16384.0}
If the working set of a loop's iteration fits the cache, the next iteration finds it there: a
buffer then moves once, however often it is read. The same holds for loops one after another.
"""

from collections.abc import Collection
from functools import lru_cache
from math import prod

from weft.core.node import Node, postorder
from weft.scalar.blocks import access, address, loops_in
from weft.scalar.nest import Block, Buffer, For, Let, free_variables
from weft.scalar.ops import Axis
from weft.scalar.placing import place
from weft.scalar.sizes import hint
from weft.targets.machine import Machine
from weft.tile.analysis.access import contraction, length, stride_along, trips
from weft.tile.analysis.grouped import grouped
from weft.tile.price.products import pays

LINE, PIECE = 64, 1024  # bytes of a cache line; of a piece of a row that is as good as a whole one
Axes = frozenset[Node]
Traffic = dict[tuple[Buffer, Axes], float]  # bytes, by what is read and the axes that decide where


def moved(body: Block, cache: int, sector: int = 1) -> dict[Buffer, float]:
    """Bytes per global buffer that one run of the block moves past a cache of that size.

    A local buffer that is larger counts too. Where no loop goes from an element to the next, one
    moves with what else is in its sector; tiles of a machine without sectors hold terms in groups.
    """
    blocked = {s.axis for s in loops_in(body) if _is_tiled(s, sector == 1)}
    total: dict[Buffer, float] = {}
    for (b, _), n in _Count(cache, blocked, sector).block(place(body, partial=True)).items():
        total[b] = total.get(b, 0.0) + n
    return total


def _is_tiled(stmt: For, groups: bool) -> bool:
    found = contraction(stmt) or (grouped(stmt) if groups else None)
    return found is not None and (not found.groups or pays(found))


def touched(body: Block, target: Machine) -> int:
    """The bytes of its buffers that a kernel touches, to compare with the last cache.

    Of 32 MB: splitting heads, which touches 25, is slower with streaming stores on a quiet
    machine, layer norm, which touches 33.6, takes half the time.
    """
    parts = moved(body, target.l2).items()
    return sum(b.bytes if hint(b.bytes) <= n else int(n) for b, n in parts)


def memory_ns(body: Block, target: Machine) -> float:
    """Time to move them past the second-level cache, and from memory what exceeds the last one.

    Less than that is found there: a kernel mostly reads what another has just written.
    """
    total = sum(moved(body, target.l2, target.sector).values())
    if total < target.l2:
        return total / target.cache_bytes_per_ns
    apart = lines_apart(body, target.l2) * target.line_ns
    beyond = sum(moved(body, max(target.l2, target.l3 // target.cores), target.sector).values())
    if beyond < target.l3:
        return max(total / target.l3_bytes_per_ns, apart)
    return max(total / target.l3_bytes_per_ns, beyond / target.memory_bytes_per_ns, apart)


def lines_apart(body: Block, cache: int) -> float:
    """Cache lines of pieces of rows that are moved for strip after strip of columns.

    A strip of all rows is more than the cache holds, so that each line moves for each piece that
    it has a part of; and pieces are so short that nothing fetches ahead what comes next.
    """
    return sum(_apart_in(s, (), cache) for s in body if isinstance(s, For))


def _apart_in(stmt: For, around: tuple[For, ...], cache: int) -> float:
    path, own = (*around, stmt), [s for s in stmt.body if not isinstance(s, For)]
    found = (access(part) for s in own for part in (s, *postorder(*s.terms())))
    lines = sum(_pieces(*where, path, cache) for where in dict.fromkeys(filter(None, found)))
    return lines + sum(_apart_in(s, path, cache) for s in stmt.body if isinstance(s, For))


def _pieces(buffer: Buffer, index: tuple[Node, ...], path: tuple[For, ...], cache: int) -> float:
    """Lines that one access moves so, inside those loops; 0 where it goes on from line to line."""
    if buffer.space != "global" or len(path) < 3:
        return 0.0
    where, size, run = address(buffer, index, {}), buffer.type.dtype.bytes, 1
    steps = [stride_along(where, s.axis) for s in path]
    last = len(path) - 1
    while last >= 0 and steps[last] in (0, run):
        run *= trips(path[last]) if steps[last] else 1
        last -= 1
    if None in steps or run not in steps[: max(0, last)] or not LINE <= run * size < PIECE:
        return 0.0
    inside = slice(steps.index(run) + 1, last + 1)  # loops that a strip is read in, some again
    rows = prod(trips(s) for s, step in zip(path[inside], steps[inside], strict=True) if step)
    lines = (run * size + LINE - size) / LINE if run * size % LINE else run * size / LINE
    return lines * prod(trips(s) for s in path[: last + 1]) if rows * lines * LINE > cache else 0.0


@lru_cache(1 << 14)
def _apart(buffer: Buffer, index: tuple[Node, ...]) -> int:
    """Bytes from an element to the nearest that any loop goes to; those of a sector for none."""
    where = address(buffer, index, {})
    steps = (stride_along(where, a) for a in free_variables(where) if isinstance(a.op, Axis))
    return min([abs(n) for n in steps if n], default=1) * buffer.type.dtype.bytes


class _Count:
    """Traffic of the statements of one body past a cache."""

    def __init__(self, cache: int, blocked: Collection[Node], sector: int) -> None:
        self.cache, self.blocked, self.sector = cache, blocked, sector

    def block(self, stmts: Block) -> Traffic:
        own: Traffic = {}
        parts: list[Traffic] = []
        for s in stmts:
            if isinstance(s, For):
                parts.append(self.loop(s))
            touched = access(s.term if isinstance(s, Let) else s)
            if touched is not None and self.is_far(touched[0]):
                buffer, index = touched
                axes = free_variables(*index)
                size = buffer.type.dtype.bytes
                if self.sector > size:
                    size = max(size, min(self.sector, _apart(buffer, index)))
                own[buffer, axes] = own.get((buffer, axes), 0.0) + size
        return self.together([own, *parts])

    def is_far(self, buffer: Buffer) -> bool:
        """Whether it is in memory: the cache does not hold a local one either that is larger."""
        large = buffer.space == "local" and hint(buffer.bytes) > self.cache
        return buffer.space == "global" or large

    def loop(self, stmt: For) -> Traffic:
        inner = self.block(stmt.body)
        turns = stmt.lanes or (length(stmt) or stmt.step) / stmt.step
        stays = stmt.axis in self.blocked or sum(inner.values()) <= self.cache
        start = free_variables(stmt.lo)
        total: Traffic = {}
        for (b, axes), n in inner.items():
            moves = stmt.axis in axes
            key = b, (axes - {stmt.axis}) | start if moves else axes
            most = min(turns * n, hint(b.bytes)) if moves else n
            total[key] = total.get(key, 0.0) + (most if stays else turns * n)
        return total

    def together(self, parts: list[Traffic]) -> Traffic:
        """The traffic of parts that run one after another; shared buffers move once if all fit."""
        most: Traffic = {}
        total: Traffic = {}
        for part in parts:
            for key, n in part.items():
                most[key] = max(most.get(key, 0.0), n)
                total[key] = total.get(key, 0.0) + n
        return most if sum(most.values()) <= self.cache else total
