"""blockify_launch: free loops around threads become the grid; a long loop of threads is cut.

before  for a0 in 0..4096:  # free thread   after  for b0 in 0..4096 by 256:  # free grid
            y[a0] = ...                                for a0 in b0..b0 + 256:  # free thread
                                                           y[a0] = ...

Blocks are as long as the target's, shorter where there would be fewer blocks than
multiprocessors. A kernel of several nests is one block: they may need each other's results.
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node
from weft.scalar.nest import Block, For, Kernel, walk
from weft.targets.gpu import GPU
from weft.tile.access import trips
from weft.tile.moves import Labels, blocked


def blockify_launch(kernel: Kernel, target: GPU) -> Kernel:
    """Bind to the grid down to the first loop of threads, and that one in blocks."""
    if len(kernel.body) != 1 or not isinstance(kernel.body[0], For):
        return kernel
    return replace(kernel, body=(_grid(kernel.body[0], 1, target, Labels(kernel.body)),))


def _grid(stmt: For, blocks: int, target: GPU, labels: Labels) -> For:
    if stmt.role != "free" or stmt.bind not in ("", "thread"):
        return stmt
    if stmt.bind == "thread":
        return _cut(stmt, blocks, target, labels)
    only = stmt.body[0] if len(stmt.body) == 1 else None
    if isinstance(only, For):
        inner = _grid(only, blocks * trips(stmt), target, labels)
        return replace(stmt, body=(inner,), bind="grid")
    return replace(stmt, bind="grid") if _has_threads(stmt.body) else stmt


def _has_threads(body: Block) -> bool:
    return any(isinstance(s, For) and s.bind == "thread" for s in walk(body))


def _cut(stmt: For, blocks: int, target: GPU, labels: Labels) -> For:
    width = target.threads
    while width > target.warp and blocks * -(-trips(stmt) // width) < target.cores:
        width //= 2

    def block(start: Node, end: Node) -> Block:
        return (replace(stmt, lo=start, hi=end),)

    return blocked(stmt, labels.axis("b"), width, block, "grid")
