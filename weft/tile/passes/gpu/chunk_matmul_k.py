"""chunk_matmul_k: splits the sum of a tile into chunks that fit in shared memory.

before  for a2 in 0..512:  # reduce         after  for k0 in 0..512 by 16:  # reduce serial
            acc0 <- add(acc0, x*w)                     for a2 in k0..min(k0 + 16, 512):  # reduce
                                                           acc0 <- add(acc0, x*w)

Of several reduce loops the longest is chunked; the others move around it.
"""

from dataclasses import replace

from weft.scalar.blocks import loads, nodes
from weft.scalar.choices import Choices
from weft.scalar.nest import Kernel
from weft.targets.gpu import GPU
from weft.tile.analysis.access import chain, trips
from weft.tile.analysis.fragments import operands
from weft.tile.analysis.tiles import Tile, is_frame, on_tiles
from weft.tile.moves.loops import Labels, around, blocked

BYTES = 64  # of a row of a chunk: two sectors
WIDE = 128  # a whole line, where shared memory is large: threads that copy meet in no bank
LARGE = 128 << 10


def chunk_matmul_k(kernel: Kernel, target: GPU, choices: Choices) -> Kernel:
    """Split the sum of every tile into chunks."""

    def chunked(tile: Tile, labels: Labels) -> Tile:
        head = tile.sum
        if head is None or tile.chunk()[1] is not None:
            return tile
        loops, body = chain(head, "reduce")
        roomy = not any(map(is_frame, kernel.body)) or operands(body, False) is not None
        line = WIDE if roomy and target.shared >= LARGE else BYTES
        longest = max(loops, key=trips)
        widest = max((b.type.dtype.bytes for b in loads(*nodes(body))), default=4)
        size = line // widest
        while size >= 2 * trips(longest):
            size //= 2
        size = choices.pick("chunk", (size, size // 2), lambda n: -n) if size > 16 else size
        others = [f for f in loops if f is not longest]
        nest = blocked(replace(longest, body=body, folds=()), labels.axis("k"), size)
        nest = around(others, nest, bind="serial", folds=())
        return replace(tile, body=(replace(nest, folds=head.folds), *tile.body[1:]))

    return on_tiles(kernel, chunked)
