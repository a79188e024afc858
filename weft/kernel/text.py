"""Text of the kernel level: loads and stores of lanes.

v0 = load{16} x[b0 + 32]               load{16, stride 4} x[b0]      load{16} x[b0] count 5
v1 = load{16} x[b0] if v2 else 0.0     gather{16} x[v3]              gather{16} x[v3] if v2 else 0.0
y{16}[b0] = v0 count 5 if v2 stream    y{16, stride 4}[b0] = v0      scatter y{16}[v3] = v0 count 5
The other ops have the generic form: shuffle{8}(v0), extract{0}(v0), splat{16}(v0), lanes{16}.
"""

from __future__ import annotations

from weft.core.node import Node
from weft.core.text import LEVELS, Level
from weft.core.text.attributes import make_node
from weft.core.text.cursor import Cursor, show_name
from weft.kernel.ops import VectorGather, VectorLoad, VectorMaskedLoad, VectorScatter, VectorStore
from weft.scalar.nest import Buffer, Stmt
from weft.scalar.text.parser import read_nest
from weft.scalar.text.printer import SHOW_STATEMENT, show_nest
from weft.scalar.text.statements import READ, READ_STATEMENT, NestScope, read_ahead
from weft.scalar.text.terms import SHOW, Ref


def _lanes(lanes: int, stride: int = 1) -> str:
    return f"{{{lanes}}}" if stride == 1 else f"{{{lanes}, stride {stride}}}"


def _read_lanes(cursor: Cursor) -> tuple[int, int]:
    cursor.expect("{")
    lanes, stride = cursor.integer(), 1
    if not 1 <= lanes <= 4096:
        cursor.fail(f"{lanes} lanes")
    if cursor.accept(","):
        cursor.expect("stride")
        stride = cursor.integer()
    cursor.expect("}")
    return lanes, stride


def _show_load(node: Node, ref: Ref) -> str:
    """A load or a gather: all of it, some lanes by their count, or some by a condition."""
    load = node.op
    assert isinstance(load, VectorLoad | VectorMaskedLoad | VectorGather)
    word, stride = ("gather", 1) if isinstance(load, VectorGather) else ("load", load.stride)
    index, *rest = map(ref, node.args)
    lanes = "".join(f" count {n}" for n in rest)
    if ahead := getattr(load, "ahead", 0):
        lanes = f" ahead {ahead}"
    if len(rest) == 2:
        lanes = f" if {rest[0]} else {rest[1]}"
    return f"{word}{_lanes(load.lanes, stride)} {show_name(load.buffer.name)}[{index}]{lanes}"


def _read_source(cursor: Cursor, scope: NestScope) -> tuple[int, int, Buffer, Node]:
    """{16, stride 4} x[index]."""
    lanes, stride = _read_lanes(cursor)
    buffer = scope.buffer(cursor)
    return lanes, stride, buffer, _read_index(cursor, scope)


def _read_index(cursor: Cursor, scope: NestScope) -> Node:
    cursor.expect("[")
    index = scope.expression(cursor)
    cursor.expect("]")
    if not index.type.dtype.is_integer:
        cursor.invalid(f"an index must be i64, not {index.type}")
    return index


def _read_mask(cursor: Cursor, scope: NestScope) -> tuple[Node, Node] | None:
    """if v2 else 0.0."""
    if not cursor.accept("if"):
        return None
    condition = scope.condition(cursor)
    cursor.expect("else")
    return condition, scope.expression(cursor)


def _read_load(cursor: Cursor, scope: NestScope) -> Node:
    lanes, stride, buffer, index = _read_source(cursor, scope)
    if cursor.accept("count"):
        count = scope.expression(cursor)
        return make_node(cursor, VectorLoad(buffer, lanes, stride, True), index, count)
    mask = _read_mask(cursor, scope)
    if mask is None:
        ahead = read_ahead(cursor)
        return make_node(cursor, VectorLoad(buffer, lanes, stride, ahead=ahead), index)
    return make_node(cursor, VectorMaskedLoad(buffer, lanes, stride), index, *mask)


def _read_gather(cursor: Cursor, scope: NestScope) -> Node:
    lanes, stride, buffer, index = _read_source(cursor, scope)
    if stride != 1:
        cursor.fail("a gather has no stride")
    mask = _read_mask(cursor, scope)
    return make_node(cursor, VectorGather(buffer, lanes, mask is not None), index, *(mask or ()))


def _show_store(stmt: Stmt, ref: Ref) -> str:
    assert isinstance(stmt, VectorStore)
    target = f"{show_name(stmt.buffer.name)}{_lanes(stmt.lanes, stmt.stride)}[{ref(stmt.base)}]"
    count = "" if stmt.count is None else f" count {ref(stmt.count)}"
    mask = "" if stmt.mask is None else f" if {ref(stmt.mask)}"
    return f"{target} = {ref(stmt.value)}{count}{mask}{' stream' if stmt.stream else ''}"


def _read_store(cursor: Cursor, scope: NestScope) -> VectorStore:
    buffer = scope.buffer(cursor)
    lanes, stride = _read_lanes(cursor)
    base = _read_index(cursor, scope)
    cursor.expect("=")
    value = scope.expression(cursor)
    count = scope.expression(cursor) if cursor.accept("count") else None
    mask = scope.condition(cursor) if cursor.accept("if") else None
    stream = cursor.accept("stream")
    return VectorStore(buffer, base, value, lanes, stride, count, mask, stream)


def _show_scatter(stmt: Stmt, ref: Ref) -> str:
    assert isinstance(stmt, VectorScatter)
    target = f"scatter {show_name(stmt.buffer.name)}{_lanes(stmt.lanes)}[{ref(stmt.index)}]"
    count = "" if stmt.count is None else f" count {ref(stmt.count)}"
    return f"{target} = {ref(stmt.value)}{count}"


def _read_scatter(cursor: Cursor, scope: NestScope) -> VectorScatter:
    cursor.expect("scatter")
    buffer = scope.buffer(cursor)
    lanes, stride = _read_lanes(cursor)
    if stride != 1:
        cursor.fail("a scatter has no stride")
    index = _read_index(cursor, scope)
    cursor.expect("=")
    value = scope.expression(cursor)
    count = scope.expression(cursor) if cursor.accept("count") else None
    return VectorScatter(buffer, index, value, lanes, count)


SHOW.update(dict.fromkeys(("vector_load", "vector_masked_load", "vector_gather"), _show_load))
READ.update({"load{": _read_load, "gather{": _read_gather})
SHOW_STATEMENT.update({VectorStore: _show_store, VectorScatter: _show_scatter})
READ_STATEMENT.update({"{": _read_store, "scatter": _read_scatter})
LEVELS["kernel"] = Level("kernel", ("scalar", "kernel"), show_nest, read_nest)
