"""Gradients of tensor programs as more nodes of the same primitives, so that gradients have theirs.

(gx,) = gradients((loss,), (seed,), (x,))      # the sum over loss * seed, differentiated by x
graph = gradient_graph(graph)                  # a program of the gradients of its first output

Reverse mode: from the results down each node passes what it gets on to its operands by a row of
ROWS, one for each primitive: of scalar functions (`slopes.py`), views (`preimage.py`), folds
(`folds.py`) and places (`places.py`). The cost of a gradient is some times that of its program.
Rows name nodes of the program itself: what is stored and what computed again is fusion's choice.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from weft.core.errors import UnsupportedOpError
from weft.core.node import Graph, Node, Op, make, op_of, postorder, substitute
from weft.core.types import TupleType
from weft.library.calls import operator
from weft.scalar import monoid as m
from weft.tensor import ops
from weft.tensor.build import Tensor, broadcast, full, iota, scatter, total, unsqueeze
from weft.tensor.folds import reduce_back, scan_back
from weft.tensor.layouts import Contiguous
from weft.tensor.marks import Cotangent, Custom, Stop, Variable, plain
from weft.tensor.ops import (
    Extern,
    Gather,
    Input,
    Map,
    Part,
    Reduce,
    Scan,
    Scatter,
    Sort,
    View,
)
from weft.tensor.places import gather_rows_back, scatter_back
from weft.tensor.preimage import gather_back
from weft.tensor.ragged import Runs
from weft.tensor.recurrence import Recurrence
from weft.tensor.runs import as_scatter
from weft.tensor.slopes import FLAT, slopes

Nodes = tuple[Node, ...]
Found = Sequence[Tensor | None]  # for each operand its gradient; None: none
Row = Callable[[Node, Tensor], Found]


def gradients(results: Nodes, seeds: Nodes, xs: Nodes) -> Nodes:
    """The sum over all results times their seeds, differentiated by each of xs: of its type.

    They may hold marks, which `plain` takes out. UnsupportedOpError where a node on the way has no
    gradient here.
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
            for a, g in zip(node.args, ROWS[type(node.op)](node, found[node]), strict=True):
                if g is not None and reach[a] and a.type.dtype.is_float:
                    _add(found, a, _like(g, a))
    return tuple(found.get(x, full(x.type.shape, 0, x.type.dtype)).node for x in xs)


def gradient_graph(graph: Graph) -> Graph:
    """The first output, and its gradient by every float input: the sum's, where it is no number."""
    y = graph.outputs[0]
    xs = tuple(x for x in graph.inputs if x.type.dtype.is_float)
    seed = full(y.type.shape, 1, y.type.dtype).node
    outputs = plain((y, *gradients((y,), (seed,), xs)))
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
    # a complex number is no float here, but it is what an op refuses to differentiate
    kinds = ("float", "pair", "foreign")
    return isinstance(node.type, TupleType) or node.type.dtype.kind in kinds


def _add(found: dict[Any, Tensor], key: object, g: Tensor) -> None:
    found[key] = found[key] + g if key in found else g


def _like(g: Tensor, x: Node) -> Tensor:
    """A gradient of what an operand of rank 0 was spread to is summed."""
    if x.type.rank or not g.rank:
        return g if g.rank == x.type.rank else broadcast(g, x.type.shape)
    return total(g, range(g.rank))


def _map(node: Node, g: Tensor) -> Found:
    op = op_of(node, Map)
    return slopes(op.function, g, Tensor(node), *map(Tensor, node.args))


def _scatter(node: Node, g: Tensor) -> Found:
    to_base, to_values = scatter_back(gradients, node, g)
    return to_base, None, to_values


def _runs(node: Node, g: Tensor) -> Found:
    """Those of the scatter that does the same."""
    to_base, to_x = gradients((as_scatter(node).node,), (g.node,), node.args[::2])
    return Tensor(to_base), None, Tensor(to_x)


def _view(node: Node, g: Tensor) -> Found:
    return (gather_back(g, op_of(node, View), node.args[0].type.shape),)


def _sort(node: Node, g: Tensor) -> Found:
    """Each element goes back to where it was."""
    op, key = op_of(node, Sort), Tensor(node.args[0])
    places = iota(key.shape, op.axis)
    at = make(replace(op, result=len(node.args)), *node.args, places.node)
    back = scatter(m.SUM, full(key.shape, 0, g.dtype), op.axis, Tensor(at), g)
    return [back if i == op.result else None for i in range(len(node.args))]


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
    if isinstance(node.op, Recurrence):
        raise UnsupportedOpError("a recurrence has no gradient at the tensor level, by weft.grad")
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
    Reduce: lambda node, g: (reduce_back(node, g),),
    Scan: lambda node, g: (scan_back(node, g),),
    Gather: lambda node, g: (gather_rows_back(node, g), *(None for _ in node.args[1:])),
    Scatter: _scatter,
    Runs: _runs,
    Contiguous: lambda node, g: (g,),
    Extern: _extern,
    Sort: _sort,
    Variable: lambda node, g: (g,),
}
