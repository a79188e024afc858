"""What a program says of its gradients: identities that differentiation sees, and nothing else.

x = mark(Variable(0), x)                   # a gradient to just this use of x
y = mark(Stop(), y)                        # no gradient passes to y
plain((y,))                                # the tensors without marks, as they are computed
They are no ops of the tensor level: lowering the torch level takes them out again.
"""

from dataclasses import dataclass
from typing import Any

from weft.core.node import Node, Nodes, Op, make, rebuild
from weft.core.types import TensorType, TupleType
from weft.tensor.ops import Part


@dataclass(frozen=True)
class Variable(Op):
    """x, as what a gradient is taken by: another node than x, and than one of another number."""

    number: int

    def infer(self, x: TensorType) -> TensorType:
        return x


@dataclass(frozen=True)
class Stop(Op):
    """x, a constant to gradients."""

    def infer(self, x: TensorType) -> TensorType:
        return x


@dataclass(frozen=True)
class Cotangent(Op):
    """Stands for the gradient of a result of a Custom while its backward function is traced."""

    number: int

    def infer(self, y: TensorType) -> TensorType:
        return y


@dataclass(frozen=True)
class Custom(Op):
    """`results` tensors, and gradients to `inputs` others that are given, not derived.

    Operands: the results, their Cotangents, the inputs, and each input's gradient, which reads the
    Cotangents: what stands for them is put in their place.
    """

    results: int
    inputs: int

    def infer(self, *types: TensorType) -> Any:
        return TupleType(types[: self.results])

    def parts(self, args: Nodes) -> tuple[Nodes, Nodes, Nodes, Nodes]:
        """The results, cotangents, inputs and gradients among the operands."""
        n, m = self.results, self.inputs
        return args[:n], args[n : 2 * n], args[2 * n : 2 * n + m], args[2 * n + m :]


def mark(op: Op, x: Node) -> Node:
    return make(op, x)


def custom(results: Nodes, cotangents: Nodes, inputs: Nodes, gradients: Nodes) -> Nodes:
    """The results, which pass gradients on to the inputs as `gradients` says."""
    op = Custom(len(results), len(inputs))
    whole = make(op, *results, *cotangents, *inputs, *gradients)
    return tuple(make(Part(i), whole) for i in range(len(results)))


def plain(roots: Nodes, memo: dict[Node, Node] | None = None) -> Nodes:
    """The same tensors without marks."""

    def change(node: Node) -> Node | None:
        if isinstance(node.op, Variable | Stop):
            return node.args[0]
        if isinstance(node.op, Part) and isinstance(node.args[0].op, Custom):
            return node.args[0].args[node.op.number]
        return None

    return rebuild(roots, change, memo)
