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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

from weft.core.node import Node
from weft.scalar.blocks import loops_in
from weft.scalar.intervals import Interval
from weft.scalar.nest import Block, For, Kernel, Local, Stmt, free_variables
from weft.tile.analysis.access import ranges_in
from weft.tile.moves.loops import Labels, around, nested


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

    It declares the intermediates between them, or is the loop over chunks around them.
    """
    if not isinstance(stmt, For) or stmt.role == "reduce" or stmt.folds:
        return False
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
