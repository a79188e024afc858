"""Stages terms: computes them into a buffer, from where they are read.

fill, read = staged(buffer, x[a0, a2], {a0: for m0 in .., a2: for n0 in ..})

A row that several loops over threads read is loaded by all threads into shared memory, once:

before  for a1 in 0..2048:  # reduce thread     after  local x_s0: f32[2048] in shared
            ... load x[a0, a1]                         for m0 in 0..2048:  # free thread
        for a2 in 0..2048:  # free thread                  x_s0[m0] = load x[a0, m0]
            ... load x[a0, a2]                         for a1 in 0..2048:  # reduce thread
                                                           ... load x_s0[a1]
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from weft.core.node import Node, make, substitute
from weft.scalar.blocks import expand_loops, loops_in, map_loops, nodes, stored_in, substitute_block
from weft.scalar.nest import Block, Buffer, For, Load, Local, Store, free_variables
from weft.scalar.ops import axis
from weft.tile.moves.loops import Labels, nested, past

HERE = axis("here")  # where a loop is along a row


def staged(buffer: Buffer, term: Node, loops: Mapping[Node, For]) -> tuple[Block, Node]:
    """Declares a buffer and fills it with a term, by loops in place of axes of it; how to read it.

    before  x[a0, a2]           after  for m0 in b0..b0 + 64: for n0 in k0..k0 + 16:
                                           x_s0[m0 - b0, n0 - k0] = x[m0, n0]
                                       and then x_s0[a0 - b0, a2 - k0]
    """
    (value,) = substitute((term,), {a: f.axis for a, f in loops.items()})
    store = Store(buffer, tuple(past(f.axis, f.lo) for f in loops.values()), value)
    read = make(Load(buffer), *(past(a, f.lo) for a, f in loops.items()))
    return (Local(buffer), *nested([*loops.values()], (store,))), read


@dataclass
class RowStager:
    """Stages rows in every block of statements, while shared memory lasts."""

    labels: Labels
    left: int  # bytes of shared memory

    def block(self, stmts: Block) -> Block:
        loops = [s for s in stmts if isinstance(s, For) and s.bind == "thread"]
        for i, first in enumerate(loops):
            ends = (first.lo, first.hi, first.step)
            alike = [f for f in loops[i + 1 :] if (f.lo, f.hi, f.step) == ends]
            for row in self.rows(first):
                others = [f for f in alike if row in self.rows(f)]
                staged = self.staged(row, [first, *others], stmts) if others else None
                if staged is not None:
                    return self.block(staged)
        return map_loops(stmts, lambda s: s if s in loops else replace(s, body=self.block(s.body)))

    def rows(self, loop: For) -> Iterator[Node]:
        """The loads of rows in a loop, with its axis replaced by HERE."""
        inside = {inner.axis for inner in loops_in(loop.body)}
        for term in nodes(loop.body):
            if isinstance(term.op, Load) and term.op.buffer.space == "global":
                axes = free_variables(term)
                if loop.axis in axes and not axes & inside:
                    yield substitute((term,), {loop.axis: HERE})[0]

    def staged(self, row: Node, loops: list[For], stmts: Block) -> Block | None:
        """The statements with the row staged before the first of the loops that read it."""
        first = loops[0]
        extent = first.extent or 0
        size = extent * row.type.dtype.bytes
        if not 0 < size <= self.left or row.op.buffer in stored_in(stmts):  # type: ignore[attr-defined]
            return None
        self.left -= size
        name: str = row.op.buffer.name  # type: ignore[attr-defined]
        buffer = self.labels.buffer(f"{name}_s", row.type.dtype, (extent,), "shared")
        copy = For(self.labels.axis("m"), first.lo, first.hi, (), 1, "free", "thread")
        fill, load = staged(buffer, row, {HERE: copy})

        def read(loop: For) -> Block:
            if loop not in loops:
                return (loop,)
            old, new = substitute((row, load), {HERE: loop.axis})
            changed = replace(loop, body=substitute_block(loop.body, {old: new}))
            return (*fill, changed) if loop is first else (changed,)

        return expand_loops(stmts, read)
