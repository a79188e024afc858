"""tensorize_mma: computes tiles of 16-bit products on tensor cores, by mma.sync of 16x8x16.

before  for a0 in b0..b0 + 64:  # thread     after  for w0 in b0..b0 + 64 by 32:  # thread
            for a1 in b1..b1 + 64:  # thread            for w1 in b1..b1 + 64 by 32:  # thread
                for a2 in k0..k0 + 32:  # reduce            for g0 in w0..w0 + 8:  # thread
                    acc0 <- add(acc0, x * w)                    for q0 in w1..w1 + 8 by 2:  # thread
                                                                    ... a0, a1 in registers
                                                                    for a2 in ..:  # reduce mma

Threads and registers get the layout of mma.sync's fragments (tile/analysis/fragments.py). The loop
bound to `mma` is an ordinary sum; lowering turns each 16x8 of its results into an instruction.
"""

from dataclasses import replace

from weft.scalar.nest import For, Kernel
from weft.targets.gpu import GPU
from weft.tile.analysis.access import trips
from weft.tile.analysis.fragments import COLUMNS, DEPTH, ROWS, operands
from weft.tile.analysis.tiles import Tile, on_chunks, warp_tile
from weft.tile.moves.bind import laid_out
from weft.tile.moves.loops import Labels, section


def tensorize_mma(kernel: Kernel, target: GPU) -> Kernel:
    """Lay out every tile of 16-bit products whose slabs mma.sync can read."""
    return on_chunks(kernel, _on_units) if target.matrix_units else kernel


def _on_units(tile: Tile, chunk: For, labels: Labels) -> Tile | None:
    if len(tile.threads) != 2 or tile.registers:
        return None
    *before, inner = chunk.body
    found = operands(inner.body) if isinstance(inner, For) else None
    if found is None or not isinstance(inner, For) or trips(inner) % DEPTH:
        return None
    sides = [trips(f) for f in tile.threads]
    if any(n.op.buffer.space != "shared" for n in found):  # type: ignore[attr-defined]
        return None
    warps = warp_tile(*sides)
    parts = zip(sides, warps, (ROWS, COLUMNS), strict=True)
    if any(n % warp or n % atom for n, warp, atom in parts):
        return None
    start = labels.axis("u")
    atom = section(inner, start, DEPTH, bind="mma")
    steps = replace(inner, axis=start, step=DEPTH, body=(atom,), bind="unroll")
    tile = tile.with_chunk(replace(chunk, body=(*before, steps)))
    high, wide = warps
    return laid_out(tile, tile.threads, ((high,), (wide,)), labels)
