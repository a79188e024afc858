"""Text of the kernel level: loads and stores of lanes.

v0 = load{16} x[b0 + 32]               load{16, stride 4} x[b0]      load{16} x[b0] count 5
v1 = load{16} x[b0] if v2 else 0.0     gather{16} x[v3]              gather{16} x[v3] if v2 else 0.0
y{16}[b0] = v0 count 5 if v2 stream    y{16, stride 4}[b0] = v0      scatter y{16}[v3] = v0 count 5
barrier block                          # all its threads meet
mma acc0, acc1, acc2, acc3 [v0, v1, v2, v3] [v4, v5]      # a product in the matrix units
wait async                             # the copies that were started are done
y{512}[0] = v0 async                   # the copy engine: v0 = box{x, sizes=(512, 512), ..}(b0, k0)
The other ops have the generic form: shuffle{8}(v0), permute(v0, v1), extract{0}(v0), lanes{16}.
"""

from functools import partial

from weft.core.node import Node, op_of
from weft.core.text.cursor import Cursor, show_name
from weft.core.text.level import Forms, Level, Ref, make_node
from weft.kernel.ops import AsyncWait, Barrier, Mma, VectorLoad, VectorStore
from weft.scalar.nest import Fold, Stmt
from weft.scalar.text.parser import read_nest
from weft.scalar.text.printer import show_nest
from weft.scalar.text.statements import NEST_FORMS, NestScope, read_how, read_mask, show_how
from weft.scalar.text.terms import show_access


def _show_lanes(part: VectorLoad | VectorStore) -> str:
    stride = f", stride {part.stride}" if part.stride not in (0, 1) else ""
    return f"{{{part.lanes}{stride}}}"


def _read_lanes(cursor: Cursor, apart: bool) -> tuple[int, int]:
    """{16, stride 4}: how many lanes, and how far apart they are; 0 where each has its index."""
    cursor.expect("{")
    lanes, stride = cursor.integer(), 0 if apart else 1
    if not 1 <= lanes <= 65536:
        cursor.fail(f"{lanes} lanes")
    if cursor.accept(","):
        cursor.expect("stride")
        stride = cursor.integer()
        if apart or not stride:
            cursor.fail(f"a stride of {stride}")
    cursor.expect("}")
    return lanes, stride


def _read_index(cursor: Cursor, scope: NestScope) -> Node:
    cursor.expect("[")
    index = scope.expression(cursor)
    cursor.expect("]")
    if not index.type.dtype.is_integer:
        cursor.invalid(f"an index must be i64, not {index.type}")
    return index


def _show_load(node: Node, ref: Ref) -> str:
    load = op_of(node, VectorLoad)
    word = "load" if load.stride else "gather"
    return show_access(f"{word}{_show_lanes(load)}", load, *map(ref, node.args))


def _read_load(cursor: Cursor, scope: NestScope, apart: bool = False) -> Node:
    lanes, stride = _read_lanes(cursor, apart)
    buffer, index = scope.buffer(cursor), _read_index(cursor, scope)
    counted, mask, ahead = (), (), 0
    if cursor.accept("count"):
        counted = (scope.expression(cursor),)
    elif not (mask := read_mask(cursor, scope)) and cursor.accept("ahead"):
        ahead = cursor.extent()
    load = VectorLoad(buffer, lanes, stride, bool(counted), bool(mask), ahead)
    return make_node(cursor, load, index, *counted, *mask)


def _show_store(stmt: VectorStore, ref: Ref) -> str:
    target = f"{show_name(stmt.buffer.name)}{_show_lanes(stmt)}[{ref(stmt.index)}]"
    target = target if stmt.stride else f"scatter {target}"
    count = "" if stmt.count is None else f" count {ref(stmt.count)}"
    return f"{target} = {ref(stmt.value)}{count}{show_how(stmt, ref)}"


def _read_store(cursor: Cursor, scope: NestScope) -> VectorStore:
    apart = cursor.at_name(1) and cursor.accept("scatter")
    buffer = scope.buffer(cursor)
    lanes, stride = _read_lanes(cursor, apart)
    index = _read_index(cursor, scope)
    cursor.expect("=")
    value = scope.expression(cursor)
    count = scope.expression(cursor) if cursor.accept("count") else None
    return VectorStore(buffer, index, value, lanes, stride, count, *read_how(cursor, scope))


def _show_mma(stmt: Mma, ref: Ref) -> str:
    sums = ", ".join(show_name(f.labels[0]) for f in stmt.sums)
    sides = (f"[{', '.join(map(ref, side))}]" for side in (stmt.left, stmt.right))
    return f"mma {sums} {' '.join(sides)}"


def _read_mma(cursor: Cursor, scope: NestScope) -> Mma:
    cursor.expect("mma")

    def sum_of() -> Fold:
        return scope.fold(cursor, cursor.name("an accumulator"))

    sums = [sum_of()]
    while cursor.accept(","):
        sums.append(sum_of())
    left = cursor.listed(lambda: scope.expression(cursor), "[]")
    right = cursor.listed(lambda: scope.expression(cursor), "[]")
    return Mma(tuple(sums), tuple(left), tuple(right))


def _read_wait(cursor: Cursor, scope: NestScope) -> Stmt:
    cursor.expect("wait", "async")
    return AsyncWait(cursor.integer() if cursor.accept("but") else 0)


def _read_barrier(cursor: Cursor, scope: NestScope) -> Stmt:
    cursor.expect("barrier", "block")
    return Barrier()


FORMS = Forms(
    show={VectorLoad.name: _show_load},
    read={"load{": _read_load, "gather{": partial(_read_load, apart=True)},
    show_statement={
        VectorStore: _show_store,
        Mma: _show_mma,
        Barrier: lambda stmt, ref: "barrier block",
        AsyncWait: lambda stmt, ref: "wait async" + f" but {stmt.pending}" * bool(stmt.pending),
    },
    read_statement={
        "{": _read_store,
        "scatter": _read_store,
        "mma": _read_mma,
        "barrier": _read_barrier,
        "wait": _read_wait,
    },
)
KERNEL = Level("kernel", ("scalar", "kernel"), show_nest, read_nest, forms=NEST_FORMS | FORMS)
