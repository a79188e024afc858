"""tileify: of each nest, the free loop whose accesses are cheapest side by side goes to threads.

before  for a0 in 0..32:  # free            after  for a0 in 0..32:  # free
            for a1 in 0..2048:  # free                 for a1 in 0..2048:  # free thread
                y[a0, a1] = ...                            y[a0, a1] = ...

Threads of a warp run together, so the price of their accesses is that of a vector's lanes.
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node
from weft.scalar.blocks import map_statements
from weft.scalar.nest import For, Kernel, Stmt
from weft.targets.gpu import GPU
from weft.tile.access import ranges_in
from weft.tile.passes.vectorize_loops import best_axis


def tileify(kernel: Kernel, target: GPU) -> Kernel:
    """Bind the chosen free loops; what only a reduction offers is for cooperative_reduce."""
    return replace(kernel, body=bound(kernel, target, "free"))


def bound(kernel: Kernel, target: GPU, role: str) -> tuple[Stmt, ...]:
    """The body with the chosen loops of one role on threads."""
    ranges = ranges_in(kernel.body)
    chosen: set[Node] = set()
    for stmt in kernel.body:
        if isinstance(stmt, For):
            chosen |= best_axis(stmt, target, ranges)[1]

    def one(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.axis not in chosen or stmt.role != role:
            return stmt
        return replace(stmt, bind="thread")

    return map_statements(kernel.body, one)
