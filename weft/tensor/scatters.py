"""Scatters by tables: local ones of some rows and columns, which values are folded into.

nest = by_table(node, op, buffers, written, tables)
"""

from collections.abc import Callable

from weft.core.node import Node, make
from weft.core.types import TensorType
from weft.scalar import nest
from weft.scalar.intervals import Interval
from weft.scalar.ops import apply, axis, checked_index, constant
from weft.scalar.sizes import larger
from weft.scalar.structure import renumber
from weft.tensor.nests import Leaf, Nest
from weft.tensor.ops import Scatter
from weft.tensor.sorts import Buffers
from weft.tensor.terms import Terms, stored

# (rows, columns) of a scatter -> (rows, columns) of its local tables; these columns divide those.
Tables = Callable[[int, int], tuple[int, int]]


def one_table(rows: int, columns: int) -> tuple[int, int]:
    """The default table of a scatter: all rows and columns."""
    return rows, columns


def by_table(
    node: Node, op: Scatter, buffers: Buffers, written: Buffers, tables: Tables
) -> nest.Block:
    """Nests over local tables, each filled from the base, folded into, and stored.

    A table with fewer rows than the indexed axis skips the values of other rows.
    """
    shape, last = node.type.shape, len(node.type.shape) - 1
    rows, n = shape[op.axis], shape[last] if op.axis != last else 1
    height, width = tables(rows, n)
    sizes = [n // width if d == last else size for d, size in enumerate(shape)]
    row, column, first = axis("row"), axis("column"), axis("first")
    places = [axis(f"o{d}") for d in range(len(shape))]
    ranges: dict[Node, Interval] = {column: (0, width - 1)}
    ranges[row] = 0, larger(rows, node.args[2].type.shape[op.axis]) - 1
    ranges.update((p, (0, s - 1)) for p, s in zip(places, sizes, strict=True))
    outer = [(places[d], size, 1) for d, size in enumerate(sizes) if d != op.axis]
    places[last] = apply("add", apply("multiply", places[last], constant(width)), column)
    cut = height != rows
    end = apply("minimum", apply("add", first, constant(height)), constant(rows))
    own = (first, end) if cut else (constant(0), constant(rows))
    nests, bound = Nest(), frozenset([first, *(variable for variable, _, _ in outer)])

    def loops(stmt: nest.Store, lo: Node, hi: Node, role: str = "free") -> nest.Block:
        return nests.block([Leaf(((row, (lo, hi), role), (column, width, "free")), stmt)], bound)

    places[op.axis] = row
    base, index, x = node.args
    terms = Terms(buffers, ranges)
    start, at, value = (terms.of(a, tuple(places)) for a in (base, index, x))
    table = nest.Buffer("table", TensorType(value.type.dtype, (height, width)), "local")
    at = apply(checked_index, at, constant(rows))
    here = apply("subtract", row, first) if cut else row
    target = (apply("subtract", at, first) if cut else at, column)
    mine = apply("and", apply("le", first, at), apply("lt", at, end)) if cut else None
    guard = (mine, constant(0, value.type.dtype)) if mine else ()
    known = make(nest.Load(table, masked=cut), *target, *guard)
    (folded,) = op.monoid.combine((known,), (value,))
    result = stored(make(nest.Load(table), here, column), node.type.dtype)
    entries = constant(x.type.shape[op.axis])
    folds = loops(nest.Store(table, target, folded, mine), constant(0), entries, "scan")
    block: nest.Block = (
        nest.Local(table),
        *loops(nest.Store(table, (here, column), start), *own),
        *(folds if x.type.size else ()),
        *loops(nest.Store(written[node], tuple(places), result), *own),
    )
    for variable, size, step in reversed([*outer, *([(first, rows, height)] * cut)]):
        block = (nest.For(variable, constant(0), constant(size), block, step),)
    return renumber(block)
