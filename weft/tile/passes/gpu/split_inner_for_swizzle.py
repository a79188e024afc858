"""split_inner_for_swizzle: splits the lines of a TMA box into pieces that TMA can swizzle.

before  local x_s0: f32[2,32,128] in shared     after  local x_s0: f32[2,4,32,32] in .. swizzle 128
        for m0 in k0..k0 + 32:  # free box             for p0 in 0..4:  # free unroll
            for n0 in b0..b0 + 128:  # free box            for m0 in k0..k0 + 32:  # free box
                x_s0[h, m0 - k0, n0 - b0] = ..                 for n0 in ..:  # free box
                                                                   x_s0[h, p0, m0 - k0, ..] = ..

A swizzle permutes the 16-byte pieces of at most 128 bytes (CUDA C++ Programming Guide, tensor
memory access): threads that read down the lines then meet in no bank, with no pad between these.
"""

from dataclasses import replace

from weft.core.types import TensorType
from weft.scalar.blocks import Index, map_statements, redirect
from weft.scalar.nest import Buffer, For, Kernel, Local, Stmt
from weft.scalar.ops import apply, constant
from weft.scalar.structure import substituted
from weft.targets.gpu import GPU
from weft.tile.analysis.boxes import box_of, boxed
from weft.tile.analysis.tiles import Tile, accesses_of, best_swizzle, on_tiles
from weft.tile.moves.loops import Labels, section


def split_inner_for_swizzle(kernel: Kernel, target: GPU) -> Kernel:
    """Choose a swizzle for every slab that TMA fills."""

    def permuted(tile: Tile, labels: Labels) -> Tile:
        found = list(accesses_of(tile))
        for slab in sorted(boxed(tile.body), key=lambda b: b.name):
            swizzle = best_swizzle(slab, found, target)[1]
            tile = _in_pieces(tile, slab, swizzle, labels) if swizzle else tile
        return tile

    return on_tiles(kernel, permuted)


def _in_pieces(tile: Tile, slab: Buffer, swizzle: int, labels: Labels) -> Tile:
    """The tile with the lines of a slab in pieces as long as its swizzle."""
    dtype, (*halves, rows, line) = slab.type.dtype, slab.type.shape
    piece = swizzle // dtype.bytes
    if line == piece:
        held = replace(slab, swizzle=swizzle)
        return replace(tile, body=substituted(tile.body, {slab: held}))
    shape = TensorType(dtype, (*halves, line // piece, rows, piece))
    held = replace(slab, type=shape, swizzle=swizzle)

    def place(_: Buffer, index: Index) -> Index:
        number, at = (apply(f, index[-1], constant(piece)) for f in ("floordiv", "floormod"))
        return (*index[:-2], number, index[-2], at)

    def split(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Local) and stmt.buffer == slab:
            return Local(held)
        box = box_of(stmt)
        if not isinstance(stmt, For) or box is None or box.store.buffer != held:
            return stmt
        number, at = labels.axis("p"), box.line.axis
        start = apply("add", box.line.lo, apply("multiply", number, constant(piece)))
        *half, _, row, _ = box.store.index
        store = replace(box.store, index=(*half, number, row, apply("subtract", at, start)))
        one = replace(box, line=section(box.line, start, piece), store=store).nest()
        return For(number, constant(0), constant(line // piece), (one,), 1, "free", "unroll")

    return replace(tile, body=map_statements(redirect(tile.body, {slab: held}, place), split))
