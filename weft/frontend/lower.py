"""Torch level to tensor level: each ATen call becomes primitives by its row of the table.

graph = to_tensor(torch_graph)                        # what has no row becomes an extern
graph = to_tensor(torch_graph, fallback="error")      # ... or UnsupportedOpError
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from weft.core.errors import UnsupportedOpError, VerifyError
from weft.core.node import Graph, Node, bottom_up, make, postorder
from weft.core.types import DType, TensorType, bf16, boolean, row_major
from weft.frontend.aten.derivatives import GRADIENT
from weft.frontend.aten.rows import LOWER
from weft.frontend.aten.table import Decline, Row
from weft.frontend.schema import with_defaults
from weft.frontend.torch_level import TORCH_DTYPE, Aten, dtype_of, encode_call
from weft.library.calls import operator, torch_object
from weft.scalar.sizes import Extent, Size, Undecided, differ, hint
from weft.tensor.build import Number, Tensor, broadcast, cast, full, literal, view, widen
from weft.tensor.marks import plain
from weft.tensor.ops import Extern, Input, Part, positions
from weft.tensor.recurrence import Recurrence

TILES = 1 << 20  # products of a call, from which on ATen's tiles are worth a call of their own


def to_tensor(
    graph: Graph,
    fallback: str = "aten",
    library: Collection[str] = (),
    tiled: Collection[str] = (),
) -> Graph:
    """The same program in tensor primitives, with the torch names and source lines.

    Calls of the `library` stay ATen's where they may, although they have rows; so do large `tiled`
    ones of bf16.
    """
    library, tiled = (library, tiled) if fallback == "aten" else ((), ())
    within = {n for n in graph.nodes() if isinstance(n.op, Aten) and n.op.target == GRADIENT}
    differentiated = {*postorder(*within)}  # which needs rows
    done: dict[Node, tuple[Node, ...]] = {}
    names: dict[Node, str] = {}
    origin: dict[Node, str] = {}
    for node in graph.nodes():
        if isinstance(node.op, Aten):
            stays = node.op.target in library or (node.op.target in tiled and _is_in_tiles(node))
            stays = stays and node not in differentiated
            own = "library" if stays else fallback
            done[node] = _lower(node, [done[a][0] for a in node.args], graph, own)
        elif isinstance(node.op, Recurrence):
            body = to_tensor(node.op.body, fallback, library, tiled)
            whole = make(replace(node.op, body=body), *(done[a][0] for a in node.args))
            done[node] = tuple(make(Part(i), whole) for i in range(len(body.outputs)))
        elif isinstance(node.op, Part):
            done[node] = (done[node.args[0]][node.op.number],)
        else:
            done[node] = (node,)
        if len(done[node]) == 1 and node in graph.names:
            names.setdefault(done[node][0], graph.names[node])
        for root in done[node] if node in graph.origin else ():  # with all that it is made of
            bottom_up(root, origin, lambda _, line=graph.origin[node]: line)
    for given in graph.inputs:
        origin.pop(given, None)  # no call made it
    memo: dict[Node, Node] = {}
    outputs = plain(tuple(done[o][0] for o in graph.outputs), memo)
    names = {memo.get(n, n): name for n, name in reversed(names.items())}
    origin = {memo.get(n, n): line for n, line in reversed(origin.items())}
    return Graph("tensor", graph.name, graph.inputs, outputs, names, origin)


def _is_in_tiles(node: Node) -> bool:
    """Whether a product is of bf16, and computes much for each element that it reads and writes.

    Of a matrix product it is exact: the root of the sizes' product is rows x columns x length.
    """
    types = [a.type for a in node.args[-3:]]
    types = [*sorted(types, key=lambda t: -hint(t.size))[:2], node.type]
    sizes = [hint(t.size) for t in types]
    work = math.isqrt(math.prod(sizes))
    return all(t.dtype is bf16 for t in types) and work >= max(TILES, 8 * sum(sizes))


def _lower(node: Node, args: list[Node], graph: Graph, fallback: str) -> tuple[Node, ...]:
    aten: Aten = node.op  # type: ignore[assignment]
    try:
        if fallback == "library":
            raise Decline("is faster in ATen")
        return _apply_row(aten, args, node.args)
    except Decline as decline:
        reason = str(decline)
    if fallback == "error":
        raise UnsupportedOpError(f"{aten.target}: {reason}", graph.origin.get(node))
    call = Extern(aten.target, aten.arguments, aten.results, reason)
    whole = make(call, *(_gathered(n, t) for n, t in zip(args, node.args, strict=True)))
    if len(aten.results) == 1:
        return (whole,)
    return tuple(make(Part(i), whole) for i in range(len(aten.results)))


def _gathered(value: Node, given: Node) -> Node:
    """An operand of a library call: a copy where the program makes one that only moves memory.

    Some kernels of ATen count on it, such as that of _embedding_bag, which reads no strides.
    """
    op, rows = value.op, row_major(value.type.shape)
    moved = value is not given and given.type.layout == rows
    if not moved or not isinstance(op, Input) or op.tensor.layout == rows:
        return value
    arguments, nodes = encode_call((value,), {"memory_format": torch.contiguous_format})
    results = (TensorType(op.tensor.dtype, op.tensor.shape),)
    copy = Extern("aten.clone.default", arguments, results, "a library call reads it")
    return make(copy, *nodes)


def _apply_row(aten: Aten, nodes: list[Node], given: Sequence[Node]) -> tuple[Node, ...]:
    """The results in primitives of `nodes`, which stand for what is `given` at the torch level."""
    row = LOWER.get(aten.target)
    if row is None:
        raise Decline("has no row in the ATen table")
    for t in (*(n.type for n in nodes), *aten.results):
        if t.dtype.kind == "foreign":
            raise Decline(f"no code is generated for {t.dtype}")
    args, kwargs = aten.arguments.bind([Tensor(n) for n in nodes], _leaf)
    args = [*with_defaults(operator(aten.target), args, kwargs)]
    args, kwargs = _prepare(row, args, kwargs, aten.results)
    if row.operands == "strided":
        first = given[0]
        args.insert(1, (first.op.tensor if isinstance(first.op, Input) else first.type).layout)
    results = tree_leaves(row.function(*args, **kwargs))
    if len(results) != len(aten.results):
        raise VerifyError(f"the row of {aten.target} gives {len(results)} results")
    return tuple(_finish(aten, r, t).node for r, t in zip(results, aten.results, strict=True))


def _leaf(tag: str, value: Any) -> Any:
    if tag == "complex":
        raise Decline("no code is generated for complex numbers")
    found = torch_object(tag, value)
    return dtype_of(found) if tag == "dtype" else found if tag in ("float", "size") else None


def _finish(aten: Aten, value: Tensor | Number | None, wanted: TensorType) -> Tensor:
    """A row's result in the dtype and shape torch promises: nothing, where that is empty."""
    if not isinstance(value, Tensor) or 0 in wanted.shape:
        number = 0 if value is None or isinstance(value, Tensor) else value
        return full(wanted.shape, number, wanted.dtype)
    out = cast(value, wanted.dtype)
    if out.rank == 0 and wanted.shape:
        out = broadcast(out, wanted.shape)
    if out.rank != len(wanted.shape) or any(map(_contradicts, out.shape, wanted.shape)):
        raise VerifyError(f"the row of {aten.target} gives {out.type}, torch says {wanted}")
    return view(out, wanted.shape, positions(out.rank)) if out.shape != wanted.shape else out


def _contradicts(extent: Extent, wanted: Extent) -> bool:
    """Whether two extents differ; the hints tell where sizes decide it, for torch's is guarded.

    Of min(s0, s1) torch says s0, and guards s0 <= s1: no range holds that, so nothing proves it.
    """
    try:
        return differ(extent, wanted)
    except Undecided:
        return hint(extent) != hint(wanted)


# --- operands -----------------------------------------------------------------------------------


def _prepare(
    row: Row, args: list[Any], kwargs: dict[str, Any], results: tuple[TensorType, ...]
) -> tuple[list[Any], dict[str, Any]]:
    """Operands in the dtypes that the row asks for."""
    if row.operands in ("stored", "strided"):
        return args, kwargs
    if row.operands == "widened":
        return tree_map_only(Tensor, widen, (args, kwargs))
    dtype = results[0].dtype
    if row.operands == "converted":
        return tree_map_only(Tensor, lambda value: cast(value, dtype), (args, kwargs))
    dtype = promoted(args) if dtype is boolean else dtype
    if not any(isinstance(a, Tensor) for a in tree_leaves((args, kwargs))):
        args = [literal(args[0], dtype), *args[1:]]  # torch.div(7, 2): tensors to torch

    each = partial(_operand, dtype, row.operands == "promoted")
    return [_operand(dtype, False, args[0]), *tree_map(each, args[1:])], tree_map(each, kwargs)


def _operand(dtype: DType, exact: bool, value: Any) -> Any:
    """A tensor as that dtype is computed; a number of that dtype, or an exact one."""
    if isinstance(value, Tensor):
        return cast(value if exact and value.rank == 0 else cast(value, dtype), dtype.compute)
    if exact or dtype.compute is dtype or not isinstance(value, int | float):
        return value
    return torch.tensor(value, dtype=TORCH_DTYPE[dtype]).item()


def promoted(operands: Sequence[Any]) -> DType:
    """torch's rule for the one or two operands of a predicate."""

    def stand_in(x: Tensor) -> torch.Tensor:
        return torch.empty((1,) * bool(x.rank), dtype=TORCH_DTYPE[x.dtype], device="meta")

    given = tree_map_only(Size, lambda _: 1, tree_map_only(Tensor, stand_in, list(operands)))
    return dtype_of(torch.result_type(given[0], given[-1]))
