"""A tile: the loops of a nest over blocks of the grid, threads and registers, and the body inside.

for b0 in 0..512 by 64:  # free grid            Tile(around=(b0, b1), threads=(c0, c1),
    for b1 in 0..512 by 64:  # free grid             registers=(a0, a1), body=(the sum, the store))
        for c0 in b0..b0 + 64 by 4:  # free thread
            for c1 in b1..b1 + 64 by 4:  # free thread
                for a0 in c0..c0 + 4:  # free register
                    for a1 in c1..c1 + 4:  # free register
                        for a2 in ..:  # reduce

A nest is a tile when two or more perfectly nested loops run over threads: each thread computes
results of its own. All threads share the loops over threads inside the body, which fill slabs.

for access in accesses_of(tile): access.slab, access.index, access.count    # of one tile's slabs
for access in accesses_of_block(kernel): ...                # of all, and of the intermediates

A slab is a tile of an operand, staged in shared memory; an intermediate is what one nest of a block
stores there and another loads.

wavefronts(address, loops, slab, lanes=32, width=4)       # 4: no conflicts, of 16 bytes
The model is of the CUDA C++ Programming Guide: 32 banks of 4 bytes; accesses of 8 bytes go by half
warps, those of 16 by quarters; threads that touch the same word share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from weft.core.node import Node, substitute
from weft.core.types import row_major
from weft.scalar import nest
from weft.scalar.affine import linear
from weft.scalar.blocks import accesses, address, loops_from, loops_in
from weft.scalar.intervals import Interval
from weft.scalar.nest import Block, Buffer, For, Kernel, Local, Stmt, Store, free_variables
from weft.scalar.ops import apply, constant, evaluate_term
from weft.targets.gpu import GPU
from weft.tile.analysis.access import WIDEST, ranges_in, stride_along, trips
from weft.tile.analysis.boxes import swizzles
from weft.tile.analysis.fragments import column_of, operands, pairs
from weft.tile.moves.loops import Labels, around, nested


class Product(NamedTuple):
    """A loop over the chunks of a sum, the loop over one chunk, and what that adds up."""

    chunk: For
    inner: For
    update: nest.Update


@dataclass(frozen=True)
class Tile:
    """The loops of a tile, outermost first, and the innermost body."""

    around: tuple[For, ...]
    threads: tuple[For, ...]
    registers: tuple[For, ...]
    body: Block

    def nest(self) -> For:
        """The tile as a statement again."""
        *loops, last = (*self.around, *self.threads, *self.registers)
        return around(loops, replace(last, body=self.body))

    def ranges(self) -> dict[Node, Interval]:
        """The ranges of all axes bound in it."""
        return ranges_in((self.nest(),))

    def chunk(self) -> tuple[tuple[For, ...], For | None]:
        """The reduce loops around its loop over chunks, and that loop (None when it has none)."""
        loops, at = list[For](), self.sum
        while at is not None:
            loops.append(at)
            inner = [s for s in at.body if isinstance(s, For) and s.role != "free"]
            if inner and any(at.axis in free_variables(s.lo) for s in inner):
                return tuple(loops[:-1]), at
            at = inner[0] if len(at.body) == 1 and inner else None
        return tuple(loops), None

    def product(self) -> Product | None:
        """Its sum in chunks, where that is one update in one loop."""
        chunk = self.chunk()[1]
        inner = chunk.body[0] if chunk is not None and len(chunk.body) == 1 else None
        update = inner.body[0] if isinstance(inner, For) and len(inner.body) == 1 else None
        if chunk is None or not isinstance(inner, For) or not isinstance(update, nest.Update):
            return None
        return Product(chunk, inner, update)

    @property
    def sum(self) -> For | None:
        """The outermost loop of its reduction."""
        return next((s for s in self.body if isinstance(s, For) and s.role == "reduce"), None)

    @property
    def innermost(self) -> For | None:
        """The innermost loop of its reduction."""
        return [None, *loops_in(self.body)][-1]

    def with_chunk(self, chunk: For, before: Block = (), outside: Block = ()) -> Tile:
        """The tile with another loop over chunks, after `before`; `outside` goes before the sum."""
        path, old = self.chunk()
        body = nested(path, (*before, chunk))
        at = self.body.index(path[0] if path else old)  # type: ignore[arg-type]
        return replace(self, body=(*self.body[:at], *outside, *body, *self.body[at + 1 :]))


def tile_of(stmt: Stmt) -> Tile | None:
    """The nest as a tile; None when it is none."""
    found: dict[str, list[For]] = {"around": [], "thread": [], "register": []}
    kinds = list(found)
    body: Block = (stmt,)
    while len(body) == 1 and isinstance(body[0], For) and body[0].role == "free":
        kind = body[0].bind if body[0].bind in found else "around"
        if kind not in kinds:
            break
        kinds = kinds[kinds.index(kind) :]
        found[kind].append(body[0])
        body = body[0].body
    around, threads, registers = map(tuple, found.values())
    return Tile(around, threads, registers, body) if len(threads) > 1 else None


def is_frame(stmt: Stmt) -> TypeGuard[For]:
    """Whether a loop only groups nests that a block runs one after the other.

    It declares the intermediates between them, or is the loop over chunks around them, or one that
    fills slabs ahead of that.
    """
    if not isinstance(stmt, For) or stmt.role == "reduce" or stmt.folds:
        return False
    if stmt.bind in nest.PIPELINE:
        return True
    if stmt.bind not in ("", "grid", "serial"):
        return False
    if stmt.role == "scan":
        return all(isinstance(s, For) for s in stmt.body)
    declares = any(isinstance(s, Local) for s in stmt.body)
    return declares or (len(stmt.body) == 1 and is_frame(stmt.body[0]))


def nests_of(block: Block) -> Iterator[Stmt]:
    """The nests of a block, also those grouped by frames."""
    for stmt in block:
        yield from nests_of(stmt.body) if is_frame(stmt) else (stmt,)


def on_nests(block: Block, change: Callable[[Stmt], Stmt]) -> Block:
    """The block with every nest changed, also those grouped by frames."""
    return tuple(
        replace(s, body=on_nests(s.body, change)) if is_frame(s) else change(s) for s in block
    )


def tiles_of(block: Block) -> Iterator[Tile]:
    """The tiles among the nests of a block."""
    return filter(None, map(tile_of, nests_of(block)))


def on_tiles(kernel: Kernel, change: Callable[[Tile, Labels], Tile]) -> Kernel:
    """The kernel with every tile among its nests changed."""
    labels = Labels(kernel.body)

    def one(stmt: Stmt) -> Stmt:
        found = tile_of(stmt)
        return stmt if found is None else change(found, labels).nest()

    return replace(kernel, body=on_nests(kernel.body, one))


def on_chunks(kernel: Kernel, change: Callable[[Tile, For, Labels], Tile | None]) -> Kernel:
    """The kernel with every tile changed that has a loop over chunks; None leaves one as it is."""

    def one(tile: Tile, labels: Labels) -> Tile:
        chunk = tile.chunk()[1]
        return tile if chunk is None else change(tile, chunk, labels) or tile

    return on_tiles(kernel, one)


def register_split(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns that a thread computes of a tile, chosen for few loads per product."""
    area = rows * columns
    results = min(64 if area >= 1 << 14 else 32 if area >= 1 << 12 else 16, area // 32)
    down = 1
    while 2 * down <= rows and 4 * down * down <= results * 2:
        down *= 2
    return down, min(results // down, columns)


def warp_tile(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns that a warp computes by mma.sync, of a tile of that size."""
    return min(rows, 64 if rows * columns >= 1 << 14 else 32), min(columns, 32)


# --- accesses of shared memory, and their bank conflicts ------------------------------------------

BANKS, BYTES = 32, 4
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
        elif isinstance(stmt, For) and stmt.role != "free":
            yield from _shared(stmt.body, tile, _warps(tile.threads) * trips(stmt), stmt)
        elif isinstance(stmt, Store):  # of a tile that only copies
            yield from _shared((stmt,), tile, _warps(tile.threads))
    for stmt in loops_in(body, "thread"):
        yield from _fills(stmt)


def accesses_of_block(kernel: Kernel) -> Iterator[Access]:
    """The accesses of slabs and intermediates in one chunk."""
    tiles = list(tiles_of(kernel.body))
    threads = max((trips(*t.threads) for t in tiles), default=0)
    for tile in tiles:
        yield from accesses_of(tile)
        if tile.sum is not None:  # else its stores are among those
            results = tuple(s for s in tile.body if not isinstance(s, For))
            yield from _shared(results, tile, _warps(tile.threads))
    for rows in nests_of(kernel.body):
        if isinstance(rows, For) and rows.bind == "thread" and tile_of(rows) is None:
            lanes = max(1, threads // trips(rows))  # the group of a row
            for loop in loops_in(rows.body, "lane"):
                lane = replace(loop, hi=apply("add", loop.lo, constant(lanes * loop.step)))
                group = Tile((), (rows, lane), tuple(loops_in(loop.body, "register")), loop.body)
                yield from _shared(loop.body, group, _warps((rows, loop)))


def _shared(block: Block, tile: Tile, often: float, along: For | None = None) -> Iterator[Access]:
    """The accesses of shared memory in a block that warps run so often, in a loop `along` if given.

    Elements that lie side by side along that loop are one access.
    """
    for slab, index in accesses(block):
        if slab.space != "shared":
            continue
        deep = along and stride_along(address(slab, index, {}), along.axis) == 1
        length = trips(along) if along and deep else 1
        width, index, count = strip(slab, index, tile.registers, length)
        index = substitute(index, {along.axis: along.lo}) if along else index
        yield Access(slab, index, tile.threads, width, often * count)


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
    left = pairs(found.left, row.axis, rows, atom, lanes)
    right = pairs(found.right, column.axis, own, atom, lanes)
    for held, count in ((left, trips(down)), (right, trips(across))):
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


def best_pad(slab: Buffer, found: Sequence[Access], target: GPU) -> tuple[float, int]:
    """The pad with the fewest wavefronts over all accesses of a slab, after that number."""
    own = [a for a in found if a.slab == slab]
    wide = any(a.width > 1 for a in own)
    unit = max(1, WIDEST // slab.type.dtype.bytes) if wide else 1
    pads = [n * unit for n in range(4)]
    return min((sum(a.turns(padded(slab, p), target) for a in own), p) for p in pads)


def best_swizzle(slab: Buffer, found: Sequence[Access], target: GPU) -> tuple[float, int]:
    """The swizzle with the fewest wavefronts over all loads of a slab, after that number."""
    reads = [a for a in found if a.slab == slab and not a.is_fill]
    choices = ((replace(slab, swizzle=n), n) for n in swizzles(slab))
    return min((sum(a.turns(s, target) for a in reads), n) for s, n in choices)


def offsets(address: Node, loops: Sequence[For], lanes: int) -> list[int]:
    """The position of each thread of the first warp along loops over threads, the last fastest.

    All other axes are 0: an address need not be linear in a thread's number.
    """
    turns, inner = np.arange(lanes), 1
    known: dict[Node, Any] = dict.fromkeys(free_variables(address), 0)
    for loop in reversed(loops):
        known[loop.axis] = turns // inner % trips(loop) * loop.step
        inner *= trips(loop)
    return np.broadcast_to(evaluate_term(address, known), lanes).tolist()


def bank(word: int, slab: Buffer) -> int:
    """The bank of a word of a slab, after its swizzle."""
    if slab.swizzle:
        line = slab.type.shape[-1] * slab.type.dtype.bytes
        row, at = divmod(word * BYTES, line)
        place = row * slab.swizzle + at % slab.swizzle
        word = (place ^ place >> 3 & slab.swizzle - 16) // BYTES
    return word % BANKS


def wavefronts(address: Node, loops: Sequence[For], slab: Buffer, lanes: int, width: int) -> int:
    """The wavefronts of one access of `width` elements per thread of a slab."""
    size = slab.type.dtype.bytes
    words = max(1, width * size // BYTES)
    starts = [at * size // BYTES for at in offsets(address, loops, lanes)]
    group = max(1, lanes // words)
    total = 0
    for first in range(0, lanes, group):
        touched = {start + i for start in starts[first : first + group] for i in range(words)}
        banks = [bank(word, slab) for word in touched]
        total += max(map(banks.count, set(banks)))
    return total
