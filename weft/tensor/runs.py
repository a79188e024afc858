"""Runs as nests, and as scatters where no loop goes from one loaded place to another.

nest = folds(node, buffers, out)     # for each row, and each column, a fold of its run in registers
graph = as_scatters(graph)           # each element goes to the row that began last before it
"""

from dataclasses import replace

from weft.core.node import Graph, Node, op_of
from weft.core.types import i64
from weft.scalar.monoid import SUM
from weft.scalar.nest import Block, Buffer, Fold, Store, Update
from weft.scalar.ops import apply, axis, checked_index, constant
from weft.scalar.sizes import hint
from weft.scalar.structure import renumber
from weft.tensor.build import Tensor, broadcast_in, full, pad, scan, scatter, slice_
from weft.tensor.nests import around, loop
from weft.tensor.ops import box
from weft.tensor.ragged import Runs
from weft.tensor.sorts import Buffers
from weft.tensor.terms import Terms, stored


def folds(node: Node, buffers: Buffers, out: Buffer) -> Block:
    """The nest; a run that ends before it begins, or outside of x, is a fault."""
    op, (base, starts, x) = op_of(node, Runs), node.args
    shape, n = node.type.shape, x.type.shape[op.axis]
    ranges = box(shape, "o")
    index, turn = tuple(ranges), axis("turn")
    row, one = index[op.axis], constant(1)
    terms = Terms(buffers, {**ranges, turn: (0, n - 1)})
    end = terms.of(starts, (apply("add", row, one),))
    end = apply(checked_index, end, constant(n + 1))
    lo = apply(checked_index, terms.of(starts, (row,)), apply("add", end, one))
    value = terms.of(x, tuple(turn if a is row else a for a in index))
    fold = Fold(("acc0",), op.monoid, op.monoid.carriers((value.type.dtype,)))
    hi = apply("minimum", end, apply("add", lo, constant(n)))
    sums = loop(turn, hi, Update(fold, (value,)), role="reduce", first=lo, folds=(fold,))
    sums = replace(sums, usual=max(1, -(-hint(n) // hint(shape[op.axis]))))
    (both,) = op.monoid.combine((terms.of(base, index),), fold.accs)
    store = Store(out, index, stored(both, node.type.dtype))
    return renumber(around([*zip(index, shape, strict=True)], (sums, store)))


def as_scatter(node: Node) -> Tensor:
    """The same as a scatter; what is before the first run, or beyond the last, goes elsewhere."""
    op, (base, starts, x) = op_of(node, Runs), map(Tensor, node.args)
    n, rows = x.shape[op.axis], base.shape[op.axis]
    ends = pad(slice_(starts, 0, 1, rows), [(0, 1)], 1 << 60)
    starts = checked_index(starts, ends + 1)  # none ends before it begins
    marks = scatter(SUM, full((n + 1,), 0, i64), 0, starts, full(starts.shape, 1, i64))
    of = slice_(scan(SUM, marks, 0), 0, 0, n)  # of row i + 1, 0 before the first
    more = [(1, 1) if d == op.axis else (0, 0) for d in range(base.rank)]
    wide = scatter(op.monoid, pad(base, more), op.axis, broadcast_in(of, x.shape, (op.axis,)), x)
    return slice_(wide, op.axis, 1, rows)


def as_scatters(graph: Graph) -> Graph:
    return graph.rewrite(lambda node: as_scatter(node).node if isinstance(node.op, Runs) else None)
