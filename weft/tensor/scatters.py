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


class _Spaces:
    """The axes of a table of some rows and columns, and of what is around it."""

    def __init__(self, node: Node, op: Scatter, tables: Tables) -> None:
        shape, last = node.type.shape, len(node.type.shape) - 1
        self.rows, n = shape[op.axis], shape[last] if op.axis != last else 1
        self.named = self.rows + op.beyond  # rows that an index may name
        self.height, self.width = tables(self.named, n)
        sizes = [n // self.width if d == last else size for d, size in enumerate(shape)]
        self.row, self.column, self.first = axis("row"), axis("column"), axis("first")
        places = [axis(f"o{d}") for d in range(len(shape))]
        self.ranges: dict[Node, Interval] = {self.column: (0, self.width - 1)}
        self.ranges[self.row] = 0, larger(self.named, node.args[2].type.shape[op.axis]) - 1
        self.ranges.update((p, (0, s - 1)) for p, s in zip(places, sizes, strict=True))
        self.outer = [(places[d], size, 1) for d, size in enumerate(sizes) if d != op.axis]
        strip = apply("multiply", places[last], constant(self.width))
        places[last] = apply("add", strip, self.column)
        places[op.axis] = self.row
        self.place = tuple(places)
        self.bound = frozenset([self.first, *(variable for variable, _, _ in self.outer)])
        self.nests = Nest()

    def loops(self, stmt: nest.Store, lo: Node, hi: Node, role: str = "free") -> nest.Block:
        """A store for rows from one to another, and all columns."""
        over = (self.row, (lo, hi), role), (self.column, self.width, "free")
        return self.nests.block([Leaf(over, stmt)], self.bound)


def by_table(
    node: Node, op: Scatter, buffers: Buffers, written: Buffers, tables: Tables
) -> nest.Block:
    """Nests over local tables, each filled from the base, folded into, and stored.

    A table with fewer rows than an index may name skips the values of others; one with all has
    rows for those beyond the result too.
    """
    spaces = _Spaces(node, op, tables)
    rows, height, row, column = spaces.rows, spaces.height, spaces.row, spaces.column
    first, loops = spaces.first, spaces.loops
    cut = height != spaces.named
    end = apply("minimum", apply("add", first, constant(height)), constant(rows))
    own = (first, end) if cut else (constant(0), constant(rows))
    base, index, x = node.args
    terms = Terms(buffers, spaces.ranges)
    start, at, value = (terms.of(a, spaces.place) for a in (base, index, x))
    table = nest.Buffer("table", TensorType(value.type.dtype, (height, spaces.width)), "local")
    at = apply(checked_index, at, constant(spaces.named))
    here = apply("subtract", row, first) if cut else row
    target = (apply("subtract", at, first) if cut else at, column)
    mine = apply("and", apply("le", first, at), apply("lt", at, end)) if cut else None
    zero, others = constant(0, value.type.dtype), (constant(rows), constant(spaces.named))
    known = make(nest.Load(table, masked=cut), *target, *((mine, zero) if mine else ()))
    (folded,) = op.monoid.combine((known,), (value,))
    result = stored(make(nest.Load(table), here, column), node.type.dtype)
    entries = constant(x.type.shape[op.axis])
    folds = loops(nest.Store(table, target, folded, mine), constant(0), entries, "scan")
    block: nest.Block = (
        nest.Local(table),
        *loops(nest.Store(table, (here, column), start), *own),
        *(loops(nest.Store(table, (row, column), zero), *others) if op.beyond and not cut else ()),
        *(folds if x.type.size else ()),
        *loops(nest.Store(written[node], spaces.place, result), *own),
    )
    for variable, size, step in reversed([*spaces.outer, *([(first, rows, height)] * cut)]):
        block = (nest.For(variable, constant(0), constant(size), block, step),)
    return renumber(block)
