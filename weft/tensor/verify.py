"""What a valid tensor program is. verify(graph) raises VerifyError at the first broken line.

1. The graph's level is "tensor"; its nodes are tensor ops only.
2. Every node has the type that its op infers from its arguments' types.
3. Inputs are `input` nodes with different labels, and every `input` node is one of them.
4. Outputs are tensors; only a `part` reads an extern of several results, within their number.
5. Index terms are i64 (masks bool) over the output's own axes i0, i1, ... and nothing else.
6. A view reads inside its source wherever its mask holds.
7. Folded axes are different; a scan's monoid can scan; a scalar's value is of its dtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from weft.core.errors import VerifyError
from weft.core.graph import Graph
from weft.core.node import OPS, Node, postorder
from weft.core.types import TensorType, TupleType, boolean, i64
from weft.scalar.index import linear, linear_bounds, narrow, simplify
from weft.scalar.ops import Apply, Axis, Constant
from weft.tensor import ops
from weft.tensor.ops import Input, Shape, View, box, evaluate_term, position
from weft.tensor.rules_view import axes_of

TENSOR_OPS = tuple(cls for cls in OPS.values() if cls.__module__ == ops.__name__)
SCANS = ("sum", "product", "max", "min")
POINTS = 1 << 20  # how many places a bound that arithmetic cannot prove is tried at


@dataclass(frozen=True)
class Checker:
    """Raises VerifyError with the node's name, the sentence, and the torch source line."""

    graph: Graph

    def fail(self, node: Node, sentence: str) -> VerifyError:
        name = self.graph.names.get(node, f"an unnamed {node.op.name}")
        return VerifyError(f"{name}: {sentence}", self.graph.origin.get(node))

    def that(self, condition: bool, node: Node, sentence: str) -> None:
        if not condition:
            raise self.fail(node, sentence)


def check_op(check: Checker, node: Node) -> None:
    told = f"{node.op.name} is not an op of the {check.graph.level} level"
    check.that(isinstance(node.op, TENSOR_OPS), node, told)


def check_type(check: Checker, node: Node) -> None:
    """The node carries the type that its op infers from its arguments' types."""
    try:
        inferred = node.op.infer(*(a.type for a in node.args))
    except VerifyError as e:
        raise check.fail(node, e.message) from e
    except TypeError as e:
        raise check.fail(node, f"{node.op.name} does not take {len(node.args)} arguments") from e
    check.that(inferred == node.type, node, f"is {node.type}, but its op gives {inferred}")


def verify(graph: Graph) -> None:
    """Raise VerifyError with a sentence, the node's name and its source line, unless valid."""
    if graph.level != "tensor":
        raise VerifyError(f"{graph.name} is a program of the {graph.level} level, not tensor")
    check = Checker(graph)
    for each in (check_op, check_uses, check_type):
        for node in graph.nodes():
            each(check, node)
    check_inputs(check)
    for node in graph.outputs:
        check.that(isinstance(node.type, TensorType), node, "an output has several results")
    for node in graph.nodes():
        check_attributes(check, node)


def check_inputs(check: Checker) -> None:
    labels: set[str] = set()
    for node in check.graph.inputs:
        check.that(isinstance(node.op, Input), node, f"an input of the graph is a {node.op.name}")
        label = node.op.label if isinstance(node.op, Input) else ""
        check.that(label not in labels, node, f"two inputs are called {label}")
        labels.add(label)
    for node in check.graph.nodes():
        if isinstance(node.op, Input):
            declared = node in check.graph.inputs
            check.that(declared, node, f"reads {node.op.label}, which is not an input of the graph")


def check_uses(check: Checker, node: Node) -> None:
    several = [a for a in node.args if isinstance(a.type, TupleType)]
    if isinstance(node.op, ops.Part):
        check.that(bool(several), node, "takes a part of what has one result")
        return
    name = several[0].op.name if several else ""
    check.that(not several, node, f"reads all results of an {name} at once; take a part")


def check_attributes(check: Checker, node: Node) -> None:
    op = node.op
    if isinstance(op, View):
        check_view(check, node, op)
    if isinstance(op, ops.Index):
        check_term(check, node, op.term, op.shape)
    if isinstance(op, ops.Reduce):
        check.that(len(set(op.axes)) == len(op.axes), node, f"folds an axis twice: {op.axes}")
    if isinstance(op, ops.Scan | ops.Scatter):
        check.that(op.monoid.name in SCANS, node, f"{op.monoid} is not a monoid of scans")
    if isinstance(op, ops.Scalar):
        fits = type(op.value) is op.dtype.python
        if fits and op.dtype.is_integer:
            limits = np.iinfo(op.dtype.numpy)
            fits = limits.min <= op.value <= limits.max
        check.that(fits, node, f"{op.value!r} is not a value of {op.dtype}")


def check_term(check: Checker, node: Node, term: Node, shape: Shape) -> None:
    """A term over the axes of the shape, of pointwise functions and constants."""
    axes = {position(i) for i in range(len(shape))}
    for n in postorder(term):
        scalar = isinstance(n.op, Axis | Constant | Apply)
        check.that(scalar, node, f"{n.op.name} stands in an index term")
        if isinstance(n.op, Axis):
            sentence = (
                f"index term uses {n.op.label}, an axis that a rank-{len(shape)} result lacks"
            )
            check.that(n in axes, node, sentence)
    dtype = term.type.dtype
    check.that(dtype in (i64, boolean), node, f"index term is {dtype}, neither i64 nor bool")


def check_view(check: Checker, node: Node, view: View) -> None:
    for term in view.index:
        check_term(check, node, term, view.shape)
        check.that(term.type.dtype is i64, node, f"reads at a {term.type.dtype} index, not i64")
    if view.valid is not None:
        check_term(check, node, view.valid, view.shape)
        dtype = view.valid.type.dtype
        check.that(dtype is boolean, node, f"its mask is {dtype}, not bool")
    if math.prod(view.shape) == 0:
        return
    for axis, (term, extent) in enumerate(zip(view.index, node.args[0].type.shape, strict=True)):
        if proved_inside(term, view.valid, view.shape, extent):
            continue
        low, high = index_range(term, view.valid, view.shape)
        inside = low > high or (low >= 0 and high < extent)
        wrong = low if low < 0 else high
        check.that(
            inside, node, f"view reads index {wrong} of axis {axis}, which has {extent} elements"
        )


def proved_inside(term: Node, valid: Node | None, shape: Shape, extent: int) -> bool:
    """Arithmetic alone shows that the index lies in 0..extent where the mask holds."""
    ranges = box(shape)
    known = narrow(None if valid is None else simplify(valid, ranges), ranges)
    low, high = linear_bounds(*linear(simplify(term, known)), known)
    return low >= 0 and high < extent


def index_range(term: Node, valid: Node | None, shape: Shape) -> tuple[int, int]:
    """Least and greatest value of an index where the mask holds, (0, -1) where it never does.

    Where a box has too many places, it is tried at places spread evenly over each axis.
    """
    used = axes_of(term, valid)
    extents = {position(i): n for i, n in enumerate(shape) if position(i) in used}
    places = int(POINTS ** (1 / max(len(extents), 1)))
    if math.prod(extents.values()) <= POINTS:
        places = max(extents.values(), default=1)
    lines = [np.unique(np.linspace(0, n - 1, min(n, places)).astype(int)) for n in extents.values()]
    env = dict(zip(extents, np.meshgrid(*lines, indexing="ij", sparse=True), strict=True))
    values, holds = np.broadcast_arrays(
        evaluate_term(term, dict(env)), True if valid is None else evaluate_term(valid, dict(env))
    )
    seen = values[holds]
    return (int(seen.min()), int(seen.max())) if seen.size else (0, -1)
