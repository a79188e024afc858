"""Accesses of a tile's slabs by a warp, and the bank conflicts of each layout of a slab.

for access in accesses_of(tile): access.slab, access.index, access.count

A slab is a tile of an operand, staged in shared memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from weft.core.node import Node, substitute
from weft.core.types import row_major
from weft.scalar.affine import linear
from weft.scalar.blocks import address, loops_from, loops_in, nodes
from weft.scalar.nest import Buffer, For, Load, Store
from weft.scalar.ops import apply, constant
from weft.targets.gpu import GPU
from weft.tile.analysis.access import stride_along, trips
from weft.tile.analysis.boxes import swizzles
from weft.tile.analysis.fragments import column_of, operands, pairs
from weft.tile.analysis.strips import WIDEST
from weft.tile.analysis.tiles import Tile
from weft.tile.price.banks import wavefronts

ISSUE = 0.25  # wavefronts that issuing an instruction counts as


@dataclass(frozen=True)
class Access:
    """One access of a slab by a warp, and how many of them one chunk takes."""

    slab: Buffer
    index: tuple[Node, ...]
    loops: tuple[For, ...]  # over the threads that make it
    width: int
    count: float
    is_fill: bool = False

    def turns(self, slab: Buffer, target: GPU) -> float:
        """The wavefronts it takes if the slab has the layout of `slab`."""
        where = address(slab, self.index, {})
        return self.count * (wavefronts(where, self.loops, slab, target.warp, self.width) + ISSUE)


def accesses_of(tile: Tile) -> Iterator[Access]:
    """The accesses that compute one chunk, and those that fill the slabs."""
    _, chunk = tile.chunk()
    body = tile.body if chunk is None else chunk.body
    for stmt in body:
        atoms = list(loops_in((stmt,), "mma"))
        if atoms:
            loops = (s for s in loops_in((stmt,)) if s is not atoms[0])
            yield from _fragments(atoms[0], tile, trips(*loops))
        elif isinstance(stmt, Store) or (isinstance(stmt, For) and stmt.role != "free"):
            yield from _reads(stmt, tile)
    for stmt in loops_in(body, "thread"):
        yield from _fills(stmt)


def _reads(stmt: For | Store, tile: Tile) -> Iterator[Access]:
    """The loads of a sum, or of the stores of a tile that only copies."""
    loop = stmt if isinstance(stmt, For) else None
    deep = trips(loop) if loop else 1
    for term in nodes(loop.body if loop else (stmt,)):
        if not isinstance(term.op, Load) or term.op.buffer.space != "shared":
            continue
        slab, index = term.op.buffer, term.args[: term.op.buffer.type.rank]
        along = loop and stride_along(address(slab, index, {}), loop.axis) == 1
        width, index, count = strip(slab, index, tile.registers, deep if along else 1)
        index = substitute(index, {loop.axis: loop.lo}) if loop else index
        yield Access(slab, index, tile.threads, width, _warps(tile.threads) * deep * count)


def strip(
    buffer: Buffer, index: tuple[Node, ...], registers: Sequence[For], longest: int = 1
) -> tuple[int, tuple[Node, ...], float]:
    """The width of a thread's accesses, the index of the first, and how many it makes.

    `longest`: elements side by side along other loops, which count where no register's do.
    """
    most = WIDEST // buffer.type.dtype.bytes
    width, count = min(most, longest), 1.0
    for f in reversed(registers):  # to the first of a thread's results
        step = stride_along(address(buffer, index, {}), f.axis)
        count *= trips(f) if step else 1
        width = min(most, trips(f)) if step == 1 and f.step == 1 else width
        index = substitute(index, {f.axis: f.lo})
    return width, index, count / width


def _warps(threads: Sequence[For]) -> float:
    return trips(*threads) / 32


def _fragments(atom: For, tile: Tile, steps: int) -> Iterator[Access]:
    """The loads of fragments for one step of the tensor cores."""
    found, lanes = operands(atom.body), tile.threads
    if found is None or len(tile.registers) != 4:
        return
    down, row, across, column = tile.registers
    rows = [lanes[-2].axis, apply("add", lanes[-2].axis, constant(row.step))]
    own = [column_of(lanes[-1].axis, lanes)]
    sides = (
        (pairs(found.left, row.axis, rows, atom, lanes), trips(down)),
        (pairs(found.right, column.axis, own, atom, lanes), trips(across)),
    )
    for held, count in sides:
        for pair in held:
            slab = pair[0].op.buffer  # type: ignore[attr-defined]
            where = [address(slab, half.args, {}) for half in pair]
            close = linear(apply("subtract", where[1], where[0])) == ({}, 1)
            for half in pair[: 1 if close else 2]:
                often = _warps(lanes) * steps * count
                yield Access(slab, half.args, tile.threads, 2 if close else 1, often)


def _fills(stmt: For) -> Iterator[Access]:
    loops = loops_from(stmt)
    store = loops[-1].body[0]
    if not isinstance(store, Store) or store.buffer.space != "shared":
        return
    threads = tuple(f for f in loops if f.bind == "thread")
    strips = {f.axis: f.lo for f in loops if f.bind == "register"}
    width = trips(*(f for f in loops if f.axis in strips))
    index = substitute(store.index, strips)
    yield Access(store.buffer, index, threads, width, _warps(threads), True)


def padded(slab: Buffer, pad: int) -> Buffer:
    """The slab with `pad` more elements between its lines."""
    *outer, line = slab.type.shape
    strides = (*((line + pad) * step for step in row_major(tuple(outer))), 1)
    return replace(slab, type=replace(slab.type, strides=strides))


def best_pad(slab: Buffer, accesses: Sequence[Access], target: GPU) -> tuple[float, int]:
    """The pad with the fewest wavefronts over all accesses of a slab, after that number."""
    own = [a for a in accesses if a.slab == slab]
    wide = any(a.width > 1 for a in own)
    unit = max(1, WIDEST // slab.type.dtype.bytes) if wide else 1
    pads = [n * unit for n in range(4)]
    return min((sum(a.turns(padded(slab, p), target) for a in own), p) for p in pads)


def best_swizzle(slab: Buffer, accesses: Sequence[Access], target: GPU) -> tuple[float, int]:
    """The swizzle with the fewest wavefronts over all loads of a slab, after that number."""
    reads = [a for a in accesses if a.slab == slab and not a.is_fill]
    choices = ((replace(slab, swizzle=n), n) for n in swizzles(slab))
    return min((sum(a.turns(s, target) for a in reads), n) for s, n in choices)
