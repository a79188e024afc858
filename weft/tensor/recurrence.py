"""The op of loops over time, whose body is a graph; see loops.py for what builds them."""

from collections.abc import Callable, Sequence
from typing import Any

from weft.core.node import Graph, Op, op, require
from weft.core.types import TensorType, TupleType
from weft.tensor.ops import Extern

LONGEST = 128  # iterations of what is unrolled: a minute of compilation


@op("recurrence")
class Recurrence(Op):
    """Runs a graph `count` times, each time on what it gave the time before (torch's scan).

    (h, hs) = recurrence{24, carried=1, sliced=1, backward=false}(h0, x, w), and under it the body:
    Operands: what is carried, as it is at first; tensors of which each time has its slice along
    axis 0; others. The body's inputs are these. Its outputs are what is carried on, then slices.
    Results: what is carried at last, then the slices, stacked. `backward`: the last slice is first.
    """

    count: int
    carried: int
    sliced: int
    backward: bool
    body: Graph

    def infer(self, *types: TensorType) -> Any:
        given, outputs = self.body.inputs, self.body.outputs
        found = tuple(TensorType(o.type.dtype, o.type.shape) for o in outputs)
        require(self.count > 0 and self.carried <= len(found), f"{self.carried} carried tensors")
        require(len(types) == len(given), f"{len(types)} operands of {len(given)} inputs")
        for i, (t, node) in enumerate(zip(types, given, strict=True)):
            slices = self.carried <= i < self.carried + self.sliced
            shape = (self.count, *node.type.shape) if slices else node.type.shape
            require((t.dtype, t.shape) == (node.type.dtype, shape), f"operand {i} is {t}")
        for node, out in zip(given[: self.carried], found, strict=False):
            require(node.type == out, f"{out} is carried on as {node.type}")
        stacks = (TensorType(t.dtype, (self.count, *t.shape)) for t in found[self.carried :])
        return TupleType((*found[: self.carried], *stacks))

    def unrolled(
        self, step: Callable[[Sequence[Any]], Sequence[Any]], values: Sequence[Any], stack: Any
    ) -> tuple[Any, ...]:
        """The results, where `step` runs the body on values, and `stack` joins a list of them."""
        carry, end = list(values[: self.carried]), self.carried + self.sliced
        stacks: list[list[Any]] = [[] for _ in self.body.outputs[self.carried :]]
        times = range(self.count)
        for t in reversed(times) if self.backward else times:
            slices = (x[t] for x in values[self.carried : end])
            made = step((*carry, *slices, *values[end:]))
            carry = list(made[: self.carried])
            for rows, row in zip(stacks, made[self.carried :], strict=True):
                rows.append(row)
        ordered = (rows[::-1] if self.backward else rows for rows in stacks)
        return (*carry, *map(stack, ordered))


CALLS = Extern | Recurrence  # their operands and results are in memory
