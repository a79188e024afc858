"""Gradients of tensor programs as more nodes of the same primitives, so that gradients have theirs.

(gx,) = gradients((loss,), (seed,), (x,))      # the sum over loss * seed, differentiated by x
graph = gradient_graph(graph)                  # a program of the gradients of its first output

Reverse mode: from the results down each node passes what it gets on to its operands by a row of
ROWS, one for each primitive; `slopes.py` has those of scalar functions, `preimage.py` view's.
Rows name nodes of the program itself: what is stored and what computed again is fusion's choice.
"""

import math
from collections.abc import Callable, Sequence

from weft.core.errors import UnsupportedOpError
from weft.core.node import Graph, Node, Op, make, op_of, postorder, substitute
from weft.core.types import TupleType, i64
from weft.library.calls import operator
from weft.scalar import monoid as m
from weft.scalar import ops as s
from weft.scalar.sizes import differ
from weft.tensor import ops
from weft.tensor.build import (
    Tensor,
    broadcast,
    flip,
    full,
    iota,
    pad,
    permute,
    reduce,
    reshape,
    scan,
    scatter,
    total,
    unsqueeze,
)
from weft.tensor.marks import Cotangent, Custom, Stop, Variable
from weft.tensor.ops import Extern, Gather, Input, Map, Part, Reduce, Scan, Scatter, View
from weft.tensor.preimage import gather_back
from weft.tensor.slopes import FLAT, slopes

Nodes = tuple[Node, ...]
Found = Sequence[Tensor | None]  # for each operand its gradient; None: none
Row = Callable[[Node, Tensor], Found]


def gradients(results: Nodes, seeds: Nodes, xs: Nodes) -> Nodes:
    """The sum over all results times their seeds, differentiated by each of xs: of its type.

    UnsupportedOpError where a node on the way has no gradient here.
    """
    order, reach = [*postorder(*results)], dict[Node, bool]()
    for n in order:
        reach[n] = n in xs or (_passes(n) and any(reach[a] for a in n.args))
    found: dict[Node, Tensor] = {}
    parts: dict[Node, dict[int, Tensor]] = {}  # of a node with several results
    for result, seed in zip(results, seeds, strict=True):
        _add(found, result, Tensor(seed))
    for node in reversed(order):
        if not any(reach[a] for a in node.args):
            continue
        if isinstance(node.op, Part) and node in found:
            _add(parts.setdefault(node.args[0], {}), node.op.number, found[node])  # type: ignore
        elif node in parts:
            for a, g in zip(node.args, _several(node, parts[node]), strict=True):
                if g is not None and reach[a]:
                    _add(found, a, g)
        elif node in found:
            for a, g in zip(node.args, _row(node)(node, found[node]), strict=True):
                if g is not None and reach[a] and a.type.dtype.is_float:
                    _add(found, a, _like(g, a))
    return tuple(found.get(x, full(x.type.shape, 0, x.type.dtype)).node for x in xs)


def gradient_graph(graph: Graph) -> Graph:
    """The first output, and its gradient by every float input: the sum's, where it is no number."""
    y = graph.outputs[0]
    xs = tuple(x for x in graph.inputs if x.type.dtype.is_float)
    seed = full(y.type.shape, 1, y.type.dtype).node
    outputs = (y, *gradients((y,), (seed,), xs))
    names = {**graph.names}
    for x, g in zip(xs, outputs[1:], strict=True):
        names.setdefault(g, f"d_{graph.names.get(x, 'x')}")
    return Graph("tensor", graph.name, graph.inputs, outputs, names, graph.origin)


def _passes(node: Node) -> bool:
    """Whether a gradient passes through a node: floats, of a function that is not flat."""
    if isinstance(node.op, Stop | ops.Index | ops.Scalar | Input | Cotangent):
        return False
    if isinstance(node.op, Map) and node.op.function in FLAT:
        return False
    return isinstance(node.type, TupleType) or node.type.dtype.is_float


def _add(found: dict, key: object, g: Tensor) -> None:
    found[key] = found[key] + g if key in found else g


def _like(g: Tensor, x: Node) -> Tensor:
    """A gradient of what an operand of rank 0 was spread to is summed."""
    if x.type.rank or not g.rank:
        return g if g.rank == x.type.rank else broadcast(g, x.type.shape)
    return total(g, range(g.rank))


def _row(node: Node) -> Row:
    row = ROWS.get(type(node.op))
    if row is None:
        raise UnsupportedOpError(f"{node.op.name} has no gradient at the tensor level")
    return row


def _map(node: Node, g: Tensor) -> Found:
    op = op_of(node, Map)
    return slopes(op.function, g, Tensor(node), *map(Tensor, node.args))


def _view(node: Node, g: Tensor) -> Found:
    return (gather_back(g, op_of(node, View), node.args[0].type.shape),)


# --- folds ----------------------------------------------------------------------------------------


def _reduce(node: Node, g: Tensor) -> Found:
    op, x = op_of(node, Reduce), Tensor(node.args[0])
    fold = FOLDS.get(op.monoid.name)
    if fold is None:
        raise UnsupportedOpError(f"reduce{{{op.monoid}}} has no gradient at the tensor level")
    return (fold(g, Tensor(node), x, op.axes),)


def _extreme(g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """All that equal the extreme share its gradient."""
    same = s.eq(x, _spread(y, x))
    count = total(s.where(same, full(x.shape, 1, x.dtype), 0), axes, keep=True)
    return s.where(same, _spread(g / count, x), 0)


def _spread(y: Tensor, x: Tensor) -> Tensor:
    return broadcast(y, x.shape)


def _product(g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Of each element the product of those before and after it, so right where some are 0."""
    kept = [a for a in range(x.rank) if a not in axes]
    order = [*kept, *axes]
    moved = permute(x, order)
    line = reshape(moved, (*moved.shape[: len(kept)], math.prod(x.shape[a] for a in axes)))
    others = _before(line, len(kept)) * flip(
        _before(flip(line, [len(kept)]), len(kept)), [len(kept)]
    )
    back = permute(reshape(others, moved.shape), [order.index(a) for a in range(x.rank)])
    return _spread(g, x) * back


def _before(x: Tensor, axis: int) -> Tensor:
    """The product of all elements before each one along the axis."""
    return _shifted(scan(m.PRODUCT, x, axis), axis, -1, 1)


def _shifted(x: Tensor, axis: int, by: int, fill: float) -> Tensor:
    """out[i] = x[i + by] along the axis, `fill` beyond its ends."""
    pads = [(0, 0)] * x.rank
    pads[axis] = (-by, by)
    return pad(x, pads, fill)


def _deviations(g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    count = math.prod(x.shape[a] for a in axes)
    mean = total(x, axes, keep=True) * (1 / count)
    return _spread(g * 2, x) * (x - _spread(mean, x))


def _exponentials(g: Tensor, y: Tensor, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Of the sum of exp(x - top), in which top, the maximum, is not constant."""
    top = reduce(m.MAX, x, axes, keep=True)
    return _spread(g, x) * s.exp(x - _spread(top, x)) - _extreme(g * y, top, x, axes)


FOLDS: dict[str, Callable[[Tensor, Tensor, Tensor, Sequence[int]], Tensor]] = {
    "sum": lambda g, y, x, axes: _spread(g, x),
    "max": _extreme,
    "min": _extreme,
    "product": _product,
    "welford": _deviations,
    "sumexp": _exponentials,
    "logsumexp": lambda g, y, x, axes: _spread(g, x) * s.exp(x - _spread(y, x)),
}


# --- running folds --------------------------------------------------------------------------------


def _scan(node: Node, g: Tensor) -> Found:
    op, x = op_of(node, Scan), Tensor(node.args[0])
    name = op.monoid.name
    if name not in RUNNING:
        raise UnsupportedOpError(f"scan{{{op.monoid}}} has no gradient at the tensor level")
    return (RUNNING[name](g, Tensor(node), x, op.axis),)


def _reversed_sum(g: Tensor, axis: int) -> Tensor:
    return flip(scan(m.SUM, flip(g, [axis]), axis), [axis])


def _running_best(last: m.Monoid) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
    """Of equals the last one, as torch's cummax."""

    def back(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
        return scatter(m.SUM, full(x.shape, 0, x.dtype), axis, scan(last, x, axis), g)

    return back


def _running_product(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
    """L * S: L is the product before an element, S[i] = g[i] + x[i + 1] * S[i + 1].

    The recurrence by doubling (Hillis, Steele 1986), with no division: right where some are 0.
    """
    slope, value, by = _shifted(x, axis, 1, 0), g, 1
    while by < x.shape[axis]:
        value = value + slope * _shifted(value, axis, by, 0)
        slope, by = slope * _shifted(slope, axis, by, 0), 2 * by
    return _before(x, axis) * value


def _running_logsumexp(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
    """exp(x[i]) times the sum of g[j] exp(-y[j]) from i on, each sign by itself in logarithms."""

    finite = s.where(s.eq(y, -math.inf), 0, y)  # where it is not, so are all x that it is of

    def part(sign: Tensor, size: Tensor) -> Tensor:
        logs = s.where(sign, s.log(s.where(sign, size, 1)), -math.inf) - finite
        after = flip(scan(m.LOGSUMEXP, flip(logs, [axis]), axis), [axis])
        return s.exp(after + x)

    return part(g > 0, g) - part(g < 0, -g)


RUNNING: dict[str, Callable[[Tensor, Tensor, Tensor, int], Tensor]] = {
    "sum": lambda g, y, x, axis: _reversed_sum(g, axis),
    "max": _running_best(m.LAST_MAX),
    "min": _running_best(m.LAST_MIN),
    "last_argmax": _running_best(m.LAST_MAX),
    "last_argmin": _running_best(m.LAST_MIN),
    "product": _running_product,
    "logsumexp": _running_logsumexp,
}


# --- places that tensors hold ---------------------------------------------------------------------


def _gather(node: Node, g: Tensor) -> Found:
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
    out = reshape(scatter(m.SUM, base, 0, places, values), [x.shape[a] for a in named])
    return (permute(out, [named.index(a) for a in range(x.rank)]), *(None for _ in rows))


def _at(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """x at the places of a scatter."""
    rest = tuple(a for a in range(x.rank) if a != axis)
    return Tensor(make(Gather((axis,), rest), x.node, index.node))


def _scatter(node: Node, g: Tensor) -> Found:
    op, (base, index, x) = op_of(node, Scatter), map(Tensor, node.args)
    y, axis, name = Tensor(node), op.axis, op.monoid.name
    if name == "sum":
        return g, None, _at(g, axis, index)
    if name == "product":
        return _scattered_product(g, base, index, x, axis)
    first, same = s.eq(base, y), s.eq(x, _at(y, axis, index))
    ones = [s.where(t, full(t.shape, 1, g.dtype), 0) for t in (first, same)]
    share = g / scatter(m.SUM, ones[0], axis, index, ones[1])
    return s.where(first, share, 0), None, s.where(same, _at(share, axis, index), 0)


def _scattered_product(g: Tensor, base: Tensor, index: Tensor, x: Tensor, axis: int) -> Found:
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
    return back(base, plain[0], g, rest, count), None, back(x, plain[1], *there)


# --- marks, and calls of several results ----------------------------------------------------------


def _several(node: Node, given: dict[int, Tensor]) -> Found:
    """Of a node with several results, what its operands get of the gradients of these."""
    if isinstance(node.op, Custom):
        results, cotangents, inputs, backward = node.op.parts(node.args)
        known = {
            c: (given[i] if i in given else full(r.type.shape, 0, r.type.dtype)).node
            for i, (r, c) in enumerate(zip(results, cotangents, strict=True))
        }
        found = [Tensor(g) for g in substitute(backward, known)]
        skipped = [None] * (2 * len(results))
        return [*skipped, *found, *(None for _ in inputs)]
    op = op_of(node, Extern)
    if op.target not in PICKS or 0 not in given:
        return _extern(node, given[min(given)])
    x, g, at = Tensor(node.args[0]), given[0], Tensor(make(Part(1), node))
    axis = _dim(op) % max(x.rank, 1)
    if x.rank == 0:
        return (g,)
    if g.rank < x.rank:
        g, at = unsqueeze(g, axis), unsqueeze(at, axis)
    return (scatter(m.SUM, full(x.shape, 0, x.dtype), axis, at, g),)


# Library calls that pick elements of x along an axis: values, and their positions.
PICKS = {
    f"aten.{name}"
    for name in """sort.default sort.stable topk.default kthvalue.default
median.dim nanmedian.dim mode.default cummax.default cummin.default""".split()
}


def _dim(op: Extern) -> int:
    """The axis that a call names, or its default."""
    args, kwargs = op.arguments.args, op.arguments.kwargs
    names = {a.name: i for i, a in enumerate(operator(op.target)._schema.arguments)}
    at = names["dim"]
    given = args[at] if at < len(args) else kwargs.get("dim")
    return -1 if given is None else given


def _extern(node: Node, g: Tensor) -> Found:
    target = op_of(node, Extern).target
    if target == "aten.clone.default":
        return (g,)
    told = "is a library call, which has no gradient at the tensor level"
    raise UnsupportedOpError(f"{target} {told}: give it one by weft.custom_gradient")


ROWS: dict[type[Op], Row] = {
    Map: _map,
    View: _view,
    Reduce: _reduce,
    Scan: _scan,
    Gather: _gather,
    Scatter: _scatter,
    Extern: _extern,
    Variable: lambda node, g: (g,),
}
