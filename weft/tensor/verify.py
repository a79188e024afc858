"""Verifies a tensor program: verify(graph) raises VerifyError for the first broken invariant.

1. The graph's level is "tensor"; its nodes are tensor ops only.
2. Every node has the type that its op infers from its arguments' types.
3. Inputs are `input` nodes with different labels, and every `input` node is one of them.
4. Outputs are tensors; only a `part` reads an extern of several results, within their number.
5. Index terms read the output's own axes i0, i1, ... alone; a view's are i64, its mask is bool.
6. A view reads inside its source wherever its mask holds.
7. Folded axes differ; a scan or scatter has a monoid with a scan; a scalar's value fits its dtype.
8. The body of a recurrence is valid.
"""

import math

import numpy as np

from weft.core.errors import VerifyError
from weft.core.node import OPS, Graph, Node, postorder, require
from weft.core.types import Symbolic, TensorType, TupleType, boolean, i64
from weft.scalar.index import inside, narrow, simplify
from weft.scalar.ops import Apply, Axis, Constant, Symbol, evaluate_term
from weft.scalar.resize import at_some_sizes
from weft.tensor import ops
from weft.tensor.layouts import Contiguous
from weft.tensor.ops import Input, Shape, View, box, position
from weft.tensor.ragged import Runs
from weft.tensor.recurrence import Recurrence
from weft.tensor.rules_view import axes_of

HOMES = ops.__name__, Contiguous.__module__, Recurrence.__module__, Runs.__module__
TENSOR_OPS = tuple(cls for cls in OPS.values() if cls.__module__ in HOMES)
POINTS = 1 << 20  # most positions at which an index without proved bounds is evaluated


def verify(graph: Graph) -> None:
    """Raise VerifyError unless the graph is valid; it has the node's name and its torch line."""
    told = f"{graph.name} is a program of the {graph.level} level, not tensor"
    require(graph.level == "tensor", told)
    for check in (check_op, check_uses, check_type, check_declared, check_place, check_attributes):
        for node in graph.nodes():
            try:
                check(node, graph)
            except VerifyError as e:
                name = graph.names.get(node, f"an unnamed {node.op.name}")
                raise VerifyError(f"{name}: {e.message}", graph.origin.get(node)) from e


def check_op(node: Node, graph: Graph) -> None:
    require(isinstance(node.op, TENSOR_OPS), f"{node.op.name} is not an op of the tensor level")


def check_type(node: Node, graph: Graph) -> None:
    """The node carries the type that its op infers from its arguments' types."""
    try:
        inferred = node.op.infer(*(a.type for a in node.args))
    except TypeError as e:
        raise VerifyError(f"{node.op.name} does not take {len(node.args)} arguments") from e
    require(inferred == node.type, f"is {node.type}, but its op gives {inferred}")


def check_declared(node: Node, graph: Graph) -> None:
    right = isinstance(node.op, Input) or node not in graph.inputs
    require(right, f"an input of the graph is a {node.op.name}")


def check_place(node: Node, graph: Graph) -> None:
    """`input` nodes are inputs of the graph, by different labels; outputs are single tensors."""
    if isinstance(op := node.op, Input):
        require(node in graph.inputs, f"reads {op.label}, which is not an input of the graph")
        labels = [getattr(n.op, "label", "") for n in graph.inputs]
        require(labels.count(op.label) == 1, f"two inputs are called {op.label}")
    several = node in graph.outputs and not isinstance(node.type, TensorType)
    require(not several, "an output has several results")


def check_uses(node: Node, graph: Graph) -> None:
    several = [a for a in node.args if isinstance(a.type, TupleType)]
    if isinstance(node.op, ops.Part):
        require(bool(several), "takes a part of what has one result")
        return
    name = several[0].op.name if several else ""
    require(not several, f"reads all results of an {name} at once; take a part")


def check_attributes(node: Node, graph: Graph) -> None:
    op = node.op
    if isinstance(op, View):
        check_view(node, op)
    if isinstance(op, ops.Index):
        check_term(op.term, op.shape)
    if isinstance(op, ops.Reduce):
        require(len(set(op.axes)) == len(op.axes), f"folds an axis twice: {op.axes}")
        require(op.monoid.append is None, f"{op.monoid} is a monoid of scans alone")
    if isinstance(op, ops.Scatter):
        require(op.monoid.name in ops.SCATTERED, f"{op.monoid} is not a monoid of scatters")
    if isinstance(op, ops.Scan):
        require(op.monoid.scan is not None, f"{op.monoid} is not a monoid of scans")
        has = 1 + op.monoid.indexed
        require(0 <= op.result < has, f"{op.monoid} has {has} results, no {op.result}")
    if isinstance(op, Recurrence):
        verify(op.body)
    if isinstance(op, ops.Sort):
        extent = node.args[0].type.shape[op.axis]
        few = isinstance(extent, Symbolic) or op.first <= extent
        require(few, f"keeps the first {op.first} of {extent} elements")
    if isinstance(op, ops.Scalar):
        fits = type(op.value) is op.dtype.python
        if fits and op.dtype.is_integer:
            limits = np.iinfo(op.dtype.numpy)
            fits = limits.min <= op.value <= limits.max
        require(fits, f"{op.value!r} is not a value of {op.dtype}")


def check_term(term: Node, shape: Shape) -> None:
    """The term is i64 or bool, of pointwise functions, constants and the axes of the shape."""
    axes = {position(i) for i in range(len(shape))}
    for n in postorder(term):
        scalar = isinstance(n.op, Axis | Constant | Symbol | Apply)
        require(scalar, f"{n.op.name} stands in an index term")
        if isinstance(n.op, Axis):
            told = f"an axis that a rank-{len(shape)} result lacks"
            require(n in axes, f"index term uses {n.op.label}, {told}")
    dtype = term.type.dtype
    require(dtype in (i64, boolean), f"index term is {dtype}, neither i64 nor bool")


def check_view(node: Node, view: View) -> None:
    for term in view.index:
        check_term(term, view.shape)
        require(term.type.dtype is i64, f"reads at a {term.type.dtype} index, not i64")
    if view.valid is not None:
        check_term(view.valid, view.shape)
        dtype = view.valid.type.dtype
        require(dtype is boolean, f"its mask is {dtype}, not bool")
    if 0 in view.shape:
        return
    ranges = box(view.shape)
    known = narrow(None if view.valid is None else simplify(view.valid, ranges), ranges)
    for axis, (term, extent) in enumerate(zip(view.index, node.args[0].type.shape, strict=True)):
        if inside(term, extent, known):  # by interval arithmetic, wherever the mask holds
            continue
        for index, valid, shape, most in at_some_sizes((term, view.valid, view.shape, extent)):
            low, high = index_range(index, valid, shape)
            reached = low > high or (low >= 0 and high < most)
            wrong = low if low < 0 else high
            require(reached, f"view reads index {wrong} of axis {axis}, which has {most} elements")


def index_range(term: Node, valid: Node | None, shape: Shape) -> tuple[int, int]:
    """Least and greatest value of an index where the mask holds, (0, -1) where it never does.

    Evaluates all positions, or beyond POINTS of them some, spread evenly over each axis.
    """
    used = axes_of(term, valid)
    extents = {position(i): n for i, n in enumerate(shape) if position(i) in used}
    places = int(POINTS ** (1 / max(len(extents), 1)))
    if math.prod(extents.values()) <= POINTS:
        places = max(extents.values(), default=1)
    lines = [np.unique(np.linspace(0, n - 1, min(n, places)).astype(int)) for n in extents.values()]
    env = dict(zip(extents, np.meshgrid(*lines, indexing="ij", sparse=True), strict=True))
    mask = True if valid is None else evaluate_term(valid, dict(env))
    values, holds = np.broadcast_arrays(evaluate_term(term, dict(env)), mask)
    seen = values[holds]
    return (int(seen.min()), int(seen.max())) if seen.size else (0, -1)
