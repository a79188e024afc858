"""Gradients of gathers and scatters: each is written with the other.

gather_rows_back(node, g)          # of x[rows]: g summed into the rows that were read
scatter_back(gradients, node, g)   # of base and values: g, and g at the places written
"""

import math
from collections.abc import Callable

from weft.core.errors import UnsupportedOpError
from weft.core.node import Node, Nodes, make, op_of
from weft.core.types import i64
from weft.scalar import monoid as m
from weft.scalar import ops as s
from weft.scalar.sizes import Size, differ
from weft.tensor.build import (
    Tensor,
    broadcast,
    cast,
    full,
    iota,
    pad,
    permute,
    reshape,
    scatter,
    slice_,
    sort,
    winners,
)
from weft.tensor.folds import shifted
from weft.tensor.marks import Cotangent, custom, mark
from weft.tensor.ops import Gather, Scatter

Gradients = Callable[[Nodes, Nodes, Nodes], Nodes]


def gather_rows_back(node: Node, g: Tensor) -> Tensor:
    """Each element gets the sum of what was read of it: scattered along one axis.

    That is all axes which are read by positions, or all of x where it is read in part otherwise.
    """
    op, (x, *rows) = op_of(node, Gather), map(Tensor, node.args)
    others = [a for a in range(x.rank) if a not in op.axes]
    pairs = [*zip(others, op.rest, strict=True)]
    terms = dict[int, Tensor]()
    for a, r in zip(op.axes, rows, strict=True):
        place = s.where(r < 0, r + x.shape[a], r) if op.wraps else r
        terms[a] = s.checked_index(place, x.shape[a])
    if len(set(op.rest)) < len(pairs) or any(differ(x.shape[a], g.shape[b]) for a, b in pairs):
        terms |= {a: iota(g.shape, b) for a, b in pairs}
        pairs = []
    flat = full(g.shape, 0, i64)
    for a, term in terms.items():
        flat = flat * x.shape[a] + term
    lines = [b for _, b in pairs]
    order = [*(b for b in range(g.rank) if b not in lines), *lines]
    count = math.prod(g.shape[b] for b in order[: g.rank - len(lines)])
    rest = [x.shape[a] for a, _ in pairs]
    places, values = (reshape(permute(t, order), (count, *rest)) for t in (flat, g))
    base = full((math.prod(x.shape[a] for a in terms), *rest), 0, x.dtype)
    named = [*terms, *(a for a, _ in pairs)]
    if count == 1:  # one value for each line: each element compares its place with that
        here = s.eq(broadcast(places, base.shape), iota(base.shape, 0))
        whole = s.where(here, broadcast(values, base.shape), 0)
    else:
        whole = scatter(m.SUM, base, 0, places, values)
    out = reshape(whole, [x.shape[a] for a in named])
    return permute(out, [named.index(a) for a in range(x.rank)])


def _at(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """x at the places of a scatter."""
    rest = tuple(a for a in range(x.rank) if a != axis)
    return Tensor(make(Gather((axis,), rest), x.node, cast(index, i64).node))


def by_winners(node: Node) -> tuple[Node, Node]:
    """The winners of a scatter of last values, and what it gives by a gather at them.

    Threads may find them in any order.
    """
    op, (base, index, x) = op_of(node, Scatter), map(Tensor, node.args)
    last = winners(base.shape, op.axis, index, op.beyond)
    return last.node, s.where(last >= 0, _at(x, op.axis, s.maximum(last, 0)), base).node


def scatter_back(gradients: Gradients, node: Node, g: Tensor) -> tuple[Tensor, Tensor]:
    """`gradients` is grad.py's, of what these gradients pass on."""
    op, (base, index, x) = op_of(node, Scatter), map(Tensor, node.args)
    if op.beyond:  # as of the first rows of one that makes all
        pads = [(0, op.beyond * (d == op.axis)) for d in range(base.rank)]
        whole = scatter(op.monoid, pad(base, pads), op.axis, index, x)
        base_g, x_g = scatter_back(gradients, whole.node, pad(g, pads))
        return slice_(base_g, op.axis, 0, base.shape[op.axis]), x_g
    y, axis, name = Tensor(node), op.axis, op.monoid.name
    if name == "sum":
        return g, _at(g, axis, index)
    if name == "product":
        return _scattered_product(gradients, node, g)
    if name == "last":
        last = winners(base.shape, axis, index)
        mine = s.eq(_at(last, axis, index), cast(iota(index.shape, axis), last.dtype))
        return s.where(last < 0, g, 0), s.where(mine, _at(g, axis, index), 0)
    first, same = s.eq(base, y), s.eq(x, _at(y, axis, index))
    ones = [s.where(t, full(t.shape, 1, g.dtype), 0) for t in (first, same)]
    share = g / scatter(m.SUM, ones[0], axis, index, ones[1])
    return s.where(first, share, 0), s.where(same, _at(share, axis, index), 0)


def _scattered_product(gradients: Gradients, node: Node, g: Tensor) -> tuple[Tensor, Tensor]:
    """By quotients; what these pass on in turn is that of a form of products alone.

    Quotients are right where elements are 0, but their own gradients are not.
    """
    op, (base, index, x) = op_of(node, Scatter), map(Tensor, node.args)
    if isinstance(x.shape[op.axis], Size):
        told = "the gradient of a product that is scattered along a free size"
        raise UnsupportedOpError(f"{told}: compile it for one size (dynamic=False)")
    inputs = (g.node, base.node, x.node)
    found = tuple(t.node for t in _quotients(g, base, index, x, op.axis))
    whole = _in_order(base, index, x, op.axis)
    closed = gradients((whole.node,), inputs[:1], inputs[1:])
    given = tuple(mark(Cotangent(-1 - i), n) for i, n in enumerate(found))
    to_base, to_x = custom(found, given, inputs, gradients(closed, given, inputs))
    return Tensor(to_base), Tensor(to_x)


def _in_order(base: Tensor, index: Tensor, x: Tensor, axis: int) -> Tensor:
    """The same product: values sorted by place, then folded by doubling (Hillis, Steele 1986)."""
    place, value = sort(index, axis, payload=[x])
    by = 1
    while by < x.shape[axis]:
        same = s.eq(place, shifted(place, axis, -by, -1))
        value = value * s.where(same, shifted(value, axis, -by, 1), 1)
        by *= 2
    last = s.ne(place, shifted(place, axis, 1, -1))
    parts = [s.where(last, t, 0) for t in (value, full(x.shape, 1, x.dtype))]
    product, named = (
        scatter(m.SUM, full(base.shape, 0, x.dtype), axis, place, part) for part in parts
    )
    return base * s.where(named > 0, product, 1)


def _quotients(
    g: Tensor, base: Tensor, index: Tensor, x: Tensor, axis: int
) -> tuple[Tensor, Tensor]:
    """The product of the others: over an element that is not 0, unless another one is 0."""
    zeros = [s.where(s.eq(t, 0), full(t.shape, 1, g.dtype), 0) for t in (base, x)]
    count = scatter(m.SUM, zeros[0], axis, index, zeros[1])
    plain = [s.where(s.eq(t, 0), 1, t) for t in (base, x)]
    rest = scatter(m.PRODUCT, plain[0], axis, index, plain[1])

    def back(t: Tensor, divisor: Tensor, *of: Tensor) -> Tensor:
        got, others, number = of
        own = s.where(s.eq(t, 0), number - 1, number)
        return s.where(s.eq(own, 0), got * others / divisor, 0)

    there = [_at(t, axis, index) for t in (g, rest, count)]
    return back(base, plain[0], g, rest, count), back(x, plain[1], *there)
