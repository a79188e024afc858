"""Runs as nests, and as scatters and searches where no loop goes from one loaded place to another.

nest = folds(node, buffers, out)     # for each row, and each column, a fold of its run in registers
nest = fills(node, buffers, out)     # each run is a loop that stores its number
graph = as_scatters(graph)           # each element goes to the row that began last before it
"""

from dataclasses import replace

from weft.core.node import Graph, Node, make, op_of, substitute
from weft.core.types import i32, i64
from weft.scalar.monoid import SUM
from weft.scalar.nest import Block, Buffer, Fold, For, Store, Update
from weft.scalar.ops import apply, axis, cast, checked_index, constant, minimum, where
from weft.scalar.sizes import hint
from weft.scalar.structure import renumber
from weft.tensor.build import Tensor, broadcast_in, full, iota, pad, scan, scatter, slice_
from weft.tensor.build import cast as cast_tensor
from weft.tensor.nests import around, loop
from weft.tensor.ops import Gather, box
from weft.tensor.ragged import RunOf, Runs
from weft.tensor.sorts import Buffers
from weft.tensor.terms import Terms, stored


def folds(node: Node, buffers: Buffers, out: Buffer) -> Block:
    """The nest; a run that ends before it begins, or outside of x, is a fault."""
    op, (base, starts, x) = op_of(node, Runs), node.args
    shape, n = node.type.shape, x.type.shape[op.axis]
    ranges = box(shape, "o")
    index, turn = tuple(ranges), axis("turn")
    row = index[op.axis]
    terms = Terms(buffers, {**ranges, turn: (0, n - 1)})
    lo, end = _ends(terms, starts, row, n)
    value = terms.of(x, tuple(turn if a is row else a for a in index))
    fold = Fold(("acc0",), op.monoid, op.monoid.carriers((value.type.dtype,)))
    hi = apply("minimum", end, apply("add", lo, constant(n)))
    sums = loop(turn, hi, Update(fold, (value,)), role="reduce", first=lo, folds=(fold,))
    sums = replace(sums, usual=max(1, -(-hint(n) // hint(shape[op.axis]))))
    (both,) = op.monoid.combine((terms.of(base, index),), fold.accs)
    store = Store(out, index, stored(both, node.type.dtype))
    return renumber(around([*zip(index, shape, strict=True)], (sums, store)))


def fills(node: Node, buffers: Buffers, out: Buffer) -> Block:
    """The nest that stores each run's number, and the count of runs before and behind them."""
    (starts,), (n,) = node.args, node.type.shape
    count, row, turn = starts.type.shape[0] - 1, axis("row"), axis("turn")
    terms = Terms(buffers, {row: (0, count - 1), turn: (0, n - 1)})

    def fill(first: Node, last: Node, value: Node) -> For:
        stop = apply("minimum", last, constant(n))
        return loop(turn, stop, Store(out, (turn,), cast(value, i32)), first=first)

    lo, end = _ends(terms, starts, row, n)
    own = fill(lo, apply("minimum", end, apply("add", lo, constant(n))), row)
    own = replace(own, usual=max(1, -(-hint(n) // count)))
    first, last = (substitute((e,), {row: constant(r)})[0] for e, r in ((lo, 0), (end, count - 1)))
    sides = fill(constant(0), first, constant(count)), fill(last, constant(n), constant(count))
    return renumber((*sides, loop(row, count, own)))


def _ends(terms: Terms, starts: Node, row: Node, n: int) -> tuple[Node, Node]:
    """Where the run of a row begins and ends, both checked."""
    one = constant(1)
    end = apply(checked_index, terms.of(starts, (apply("add", row, one),)), constant(n + 1))
    return apply(checked_index, terms.of(starts, (row,)), apply("add", end, one)), end


def as_search(node: Node) -> Tensor:
    """The same by halves: how many runs begin up to each element, less one."""
    starts, (n,) = Tensor(node.args[0]), node.type.shape
    count = starts.shape[0] - 1
    starts = checked_index(starts, pad(slice_(starts, 0, 1, count), [(0, 1)], n) + 1)
    at, before = iota((n,), 0), full((n,), 0, i64)  # starts that are not beyond
    for bit in reversed(range((count + 1).bit_length())):
        more = before + (1 << bit)
        inner = minimum(more, count + 1) - 1
        found = Tensor(make(Gather((0,)), starts.node, inner.node))
        before = where((more <= count + 1) & (found <= at), more, before)
    of = before - 1
    return cast_tensor(where(of < 0, count, of), i32)


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
    def plain(node: Node) -> Node | None:
        if isinstance(node.op, RunOf):
            return as_search(node).node
        return as_scatter(node).node if isinstance(node.op, Runs) else None

    return graph.rewrite(plain)
