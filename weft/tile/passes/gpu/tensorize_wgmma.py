"""tensorize_wgmma: computes tiles by wgmma, where four warps multiply slabs in shared memory.

before  for w0 in b0..b0 + 128 by 64:  # thread   after  for w0 in b0..b0 + 128 by 64:  # thread
            for w1 in b1..b1 + 128 by 32: ..                 for w1 in w0..w0 + 64 by 16:  # thread
                for u0 in k0..k0 + 64 by 16:                     ... 16 rows, and all columns
                    for a2 in ..:  # reduce mma                  for a2 in ..:  # reduce warpgroup

With mma.sync a warp loads fragments of both operands; wgmma reads the slabs that TMA filled where
they lie. Each warp has all columns of 16 rows (PTX ISA, "Asynchronous warpgroup level matrix
instructions").
"""

from dataclasses import replace

from weft.scalar.nest import For, Kernel
from weft.targets.gpu import GPU
from weft.tile.analysis.access import trips
from weft.tile.analysis.boxes import boxed
from weft.tile.analysis.fragments import GROUP, ROWS, WIDTHS, goes_by_rows, operands
from weft.tile.analysis.tiles import Tile, on_chunks
from weft.tile.moves.bind import laid_out, whole_sides
from weft.tile.moves.loops import Labels


def tensorize_wgmma(kernel: Kernel, target: GPU) -> Kernel:
    """Turn every mma.sync tile whose slabs wgmma can read into a wgmma tile."""
    return on_chunks(kernel, _by_groups) if target.warpgroups else kernel


def _by_groups(tile: Tile, chunk: For, labels: Labels) -> Tile | None:
    steps = chunk.body[-1]
    atom = steps.body[0] if isinstance(steps, For) and steps.bind == "unroll" else None
    if not isinstance(steps, For) or not isinstance(atom, For):
        return None
    found, filled = operands(atom.body), boxed(chunk.body)
    sides = whole_sides(tile)
    if atom.bind != "mma" or found is None or sides is None:
        return None
    ways = [goes_by_rows(side, atom.axis) for side in found]
    if None in ways or not filled.issuperset(side.op.buffer for side in found):  # type: ignore[attr-defined]
        return None
    high, wide = map(trips, sides)
    if high % GROUP or wide not in WIDTHS:
        return None
    whole = replace(atom, lo=steps.lo, hi=steps.hi, bind="warpgroup")
    tile = tile.with_chunk(replace(chunk, body=(*chunk.body[:-1], whole)))
    return laid_out(tile, sides, ((GROUP, ROWS), (wide,)), labels)
