"""Rewrite rules for views and coordinates: compose and simplify index maps.

view(view(x, b), a) -> one view, by substitution of a's index terms into b's
view(x, identity)   -> x
gather(x, index{t}) -> view(x)
All rules move elements and change none: NaN, Inf, -0.0 and integers keep every bit.
"""

from weft.core.node import Node, Nodes, make, postorder
from weft.core.rules import Number, Rule, call, literal_value, same_number
from weft.core.types import DType
from weft.scalar.index import FALSE, TRUE, inside, narrow, simplify
from weft.scalar.ops import Axis, Constant, apply, bitand, constant, value_of, where
from weft.tensor.ops import Gather, Index, Scalar, Shape, View, box, moved, position


def scalar(value: Number, dtype: DType) -> Node:
    """A rank-0 constant."""
    return make(Scalar(dtype.python(value), dtype))


def full(shape: Shape, value: Node) -> Node:
    """A rank-0 tensor broadcast to a shape."""
    return value if value.type.shape == shape else make(View(shape, ()), value)


def axes_of(*terms: Node | None) -> set[Node]:
    """The axis variables that terms mention."""
    return {n for n in postorder(*(t for t in terms if t)) if isinstance(n.op, Axis)}


def is_identity(x: Node, shape: Shape, index: Nodes) -> bool:
    """Whether every output element is the element of x at the same coordinates."""
    return x.type.shape == shape and all(
        i is position(a) or (n == 1 and value_of(i) == 0)
        for a, (i, n) in enumerate(zip(index, shape, strict=True))
    )


def viewed(
    x: Node, shape: Shape, index: Nodes, valid: Node | None = None, fill: Number = 0
) -> Node:
    """That view of x in its simplest form: x itself, a constant, or simplified index terms."""
    ranges = box(shape)
    valid = TRUE if valid is None else simplify(valid, ranges)
    if valid is FALSE or (valid is not TRUE and 0 in x.type.shape):
        return full(shape, scalar(fill, x.type.dtype))
    if valid is TRUE:
        index = tuple(simplify(i, ranges) for i in index)
        return x if is_identity(x, shape, index) else make(View(shape, index), x)
    known = narrow(valid, ranges)  # where the mask is off, the index does not matter
    return make(View(shape, tuple(simplify(i, known) for i in index), valid, fill), x)


def simplify_view(node: Node, op: View) -> Node | None:
    return viewed(node.args[0], op.shape, op.index, op.valid, op.fill)


def compose(node: Node, op: View) -> Node | None:
    """view(view(x)): out[i] = x[inner(outer(i))]. Masks join when they fill with one value."""
    inner: View = node.args[0].op  # type: ignore[assignment]
    both = op.valid is not None and inner.valid is not None
    if both and not same_number(op.fill, inner.fill):
        return None
    index = moved(inner.index, op.index)
    valid = apply(bitand, op.valid or TRUE, *moved((inner.valid or TRUE,), op.index))
    fill = inner.fill if op.valid is None else op.fill
    return viewed(node.args[0].args[0], op.shape, index, valid, fill)


def view_of_index(node: Node, op: View) -> Node:
    """view(index{t}) -> index{t with the view's index terms substituted}."""
    (term,) = moved((node.args[0].op.term,), op.index)  # type: ignore[attr-defined]
    if op.valid is not None:
        term = apply(where, op.valid, term, constant(op.fill, term.type.dtype))
    return make(Index(op.shape, simplify(term, box(op.shape))))


def simplify_index(op: Index) -> Node:
    term = simplify(op.term, box(op.shape))
    if isinstance(term.op, Constant):
        return full(op.shape, scalar(term.op.value, term.op.dtype))
    return make(Index(op.shape, term))


def gather_of_index(node: Node, op: Gather) -> Node | None:
    """gather(x, index{t}) -> view(x), where all that it reads is known to be inside of x."""
    x, *rows = node.args
    if not all(isinstance(r.op, Index) for r in rows):
        return None
    terms = {a: r.op.term for a, r in zip(op.axes, rows, strict=True)}  # type: ignore[attr-defined]
    if not all(inside(t, x.type.shape[a], box(node.type.shape)) for a, t in terms.items()):
        return None
    rest = map(position, op.rest)
    whole = tuple(terms[a] if a in terms else next(rest) for a in range(x.type.rank))
    return viewed(x, node.type.shape, whole)


def constant_with_fill(node: Node, op: View) -> Node | None:
    """A constant padded with itself is that constant everywhere."""
    value = literal_value(node.args[0])
    same = op.valid is not None and value is not None and same_number(value, op.fill)
    return full(op.shape, node.args[0]) if same else None


VIEWS = [
    Rule("view-simplify", call("view"), simplify_view),
    Rule("view-view", call("view", call("view")), compose),
    Rule("view-index", call("view", call("index")), view_of_index),
    Rule("view-constant", call("view", call("scalar")), constant_with_fill),
    Rule("gather-index", call("gather"), gather_of_index),
    Rule("index-simplify", call("index"), simplify_index),
]
