"""Lowers a recurrence of the tensor level: its body's kernels, repeated over slices of tensors.

one = Repeating(node, operands, results, taken)
body, layouts = one.body()                      # to be lowered
step = one.repeat("gru", lower(body, groups, layouts, roads))

What is carried and stacked as well is read where the iteration before has stacked it; else two
buffers take turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.core.node import Graph, Node, op_of
from weft.core.text.graph import fresh
from weft.core.types import TensorType
from weft.scalar import nest
from weft.scalar.nest import Buffer
from weft.scalar.repeat import Repeat, Slice
from weft.scalar.structure import substituted
from weft.tensor.ops import Part
from weft.tensor.recurrence import Recurrence

Layouts = tuple[TensorType, ...]


class Repeating:
    """The lowering of one recurrence; `results` are the buffers of those that are read."""

    def __init__(
        self, node: Node, operands: list[Buffer], results: Mapping[int, Buffer], taken: set[str]
    ) -> None:
        self.op, self.operands, self.results = op_of(node, Recurrence), operands, results
        self.taken = taken  # names of buffers and kernels
        body, carried = self.op.body, self.op.carried
        self.stacked = [i for i in range(carried, len(body.outputs)) if i in results]
        stacks = {body.outputs[i]: i for i in reversed(self.stacked)}
        # carried tensor -> the stack that has it too; one whose last value is read stands alone
        alone = {i for i in range(carried) if i in results or body.outputs[i] not in stacks}
        self.held = {i: stacks[body.outputs[i]] for i in range(carried) if i not in alone}
        self.kept = [*sorted(alone), *self.stacked]  # outputs of the body that have buffers

    def body(self) -> tuple[Graph, Layouts]:
        """What is lowered, and the layouts of its outputs: those of the slices that they are."""
        outputs = tuple(self.op.body.outputs[i] for i in self.kept)
        return replace(self.op.body, outputs=outputs), tuple(map(self.layout, self.kept))

    def layout(self, i: int) -> TensorType:
        """The type of the body's output i in memory."""
        i = self.held.get(i, i)
        plain = self.op.body.outputs[i].type
        if i not in self.results or i < self.op.carried:
            return plain
        return TensorType(plain.dtype, plain.shape, self.results[i].type.layout[1:])

    def repeat(self, name: str, program: nest.Program) -> Repeat:
        """The repeated kernels of the lowered body."""
        op, carried = self.op, self.op.carried
        end = carried + op.sliced
        given = [*zip(program.inputs, self.operands, strict=True)]
        others = dict(given[end:])  # the same tensor each time
        stem = lambda b: fresh(f"{name}_{b.name}", self.taken)  # noqa: E731
        inside = dict.fromkeys((*program.inputs, *(b for s in program.kernels for b in s.outputs)))
        others |= {b: replace(b, name=stem(b)) for b in inside if b not in others}
        steps = tuple(self.renamed(name, k, others) for k in program.kernels)
        made = dict(zip(self.kept, (others[b] for b in program.outputs), strict=True))
        slices = [self.now(others[inner], whole) for inner, whole in given[carried:end]]
        slices += [self.now(made[i], self.results[i]) for i in self.stacked]
        for i, (inner, first) in enumerate(given[:carried]):
            slices += self.carry(i, others[inner], first, made)
        used = {b for k in steps for b in (*k.inputs, *k.outputs)}
        slices = [s for s in slices if s.buffer in used]
        outputs = tuple(self.results.values())
        sources = (b for s in slices for b in (s.whole, s.first) if b in self.operands)
        whole = (b for b in self.operands if b in used)
        inputs = tuple(dict.fromkeys((*sources, *whole)))  # type: ignore[arg-type]
        return Repeat(name, op.count, tuple(slices), inputs, outputs, steps)

    def renamed(
        self, name: str, kernel: nest.Kernel, others: Mapping[Buffer, Buffer]
    ) -> nest.Kernel:
        title = f"{name}_{kernel.name}"
        made = substituted(kernel, {**others})
        same = any(b.name == title for b in made.outputs)
        return replace(made, name=title if same else fresh(title, self.taken))

    def now(self, buffer: Buffer, whole: Buffer) -> Slice:
        """The slice of this iteration."""
        back = self.op.backward
        return Slice(buffer, whole, self.op.count - 1 if back else 0, -1 if back else 1)

    def carry(
        self, i: int, inner: Buffer, first: Buffer, made: Mapping[int, Buffer]
    ) -> list[Slice]:
        """What is read of the iteration before, and where this one leaves it."""
        if i in self.held:
            before = self.now(inner, self.results[self.held[i]])
            return [replace(before, at=before.at - before.step, first=first)]
        t = inner.type
        both = TensorType(t.dtype, (2, *t.shape))
        turns = Buffer(fresh(f"{inner.name}_turns", self.taken), both)
        last = self.results.get(i)
        return [Slice(inner, turns, -1, first=first), Slice(made[i], turns, last=last)]


def parts_of(group: Sequence[Node]) -> dict[int, Node]:
    """The results of a call or a recurrence that are read, by number."""
    return {part.op.number: part for part in group if isinstance(part.op, Part)}
