"""Scatters of rows by segments: entries sorted by where they go, those of a row folded at once.

kernels, takes = by_segments(node, buffers, out, taken, tables, 1 << 19)
out_order   the entries of each block by row, stably, and where each row's begin: a counting sort
            (Knuth, The Art of Computer Programming 3, 5.2), the blocks apart
out         for columns that a cache holds: block by block, row by row, for each column a fold of
            its entries in registers, into a local table; of one block into the result

A table that is read, added to and stored for each entry takes three accesses for each value; a
segment takes one. The entries are in as many blocks as that what they read of some columns stays
in the cache; what many of a block share, such as a row that they read again, is computed once and
kept side by side first. All entries of a row are folded in their order, whatever the number of
threads.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import lcm

from weft.core.node import Node, make, op_of, postorder, substitute
from weft.core.text.graph import fresh
from weft.core.types import DType, TensorType, i32, i64
from weft.scalar.blocks import Index, map_loops
from weft.scalar.intervals import Interval, bounds
from weft.scalar.monoid import LAST, SUM
from weft.scalar.nest import (
    Block,
    Buffer,
    Fold,
    For,
    Load,
    Local,
    Stmt,
    Store,
    Update,
    free_variables,
)
from weft.scalar.ops import apply, axis, cast, checked_index, constant, function_of, value_of
from weft.scalar.sizes import is_short
from weft.scalar.structure import renumber
from weft.tensor.nests import around, loop
from weft.tensor.ops import Scatter
from weft.tensor.scatters import Tables
from weft.tensor.sorts import Buffers, Made, clear, one_more
from weft.tensor.terms import Folded, Terms, stored

LEAST = 16  # columns, so that a segment fills a vector register
TILE = 128  # columns whose folds are in registers together
MOST_BLOCKS = 64


class _Segments:
    """A scatter of rows, and how its nests name what they make."""

    def __init__(self, node: Node, buffers: Buffers, out: Buffer) -> None:
        self.op, self.out = op_of(node, Scatter), out
        self.base, self.index, self.x = node.args
        self.shape, self.axis = node.type.shape, self.op.axis
        self.rows, self.entries = self.shape[self.axis], self.x.type.shape[self.axis]
        self.named = self.rows + self.op.beyond  # rows that an index may name
        self.entry, self.row, self.block = axis("entry"), axis("row"), axis("block")
        self.column, self.turn = axis("column"), axis("turn")
        self.outer = {d: axis(f"o{d}") for d in range(len(self.shape) - 1) if d != self.axis}
        self.ranges: dict[Node, Interval] = {
            self.entry: (0, self.entries - 1),
            self.row: (0, self.rows - 1),
            self.column: (0, self.shape[-1] - 1),
            **{a: (0, self.shape[d] - 1) for d, a in self.outer.items()},
        }
        self.terms = Terms(buffers, self.ranges)
        at = self.terms.of(self.index, self.place(self.entry))
        self.at = apply(checked_index, at, constant(self.named))
        self.value = self.terms.of(self.x, self.place(self.entry))
        self.start = self.terms.of(self.base, self.place(self.row))
        self.shared = self.shared_terms()

    def place(self, row: Node) -> Index:
        """The index of an element of a row."""
        every = range(len(self.shape))
        return tuple(row if d == self.axis else self.outer.get(d, self.column) for d in every)

    @property
    def is_of_rows(self) -> bool:
        """Whether whole rows go where one index says, and nothing is reduced on the way."""
        every = postorder(self.at, self.value, self.start)
        return free_variables(self.at) <= {self.entry} and not any(
            isinstance(n.op, Folded) for n in every
        )

    @property
    def reads(self) -> list[Node]:
        """Loads of the value that are in no shared term."""
        (value,) = substitute((self.value,), {t: constant(0, t.type.dtype) for t in self.shared})
        return [n for n in postorder(value) if isinstance(n.op, Load)]

    def copies_bytes(self, width: int) -> int:
        """Bytes of all that entries share, of so many columns."""
        terms = self.shared.items()
        return sum(t.type.dtype.bytes * width * (self.entries // each) for t, (_, each) in terms)

    def read(self, width: int) -> int:
        """Bytes that all entries read of so many columns; 0 where few are read again."""
        total = loaded = 0
        for term, (_, each) in self.shared.items():
            size = term.type.dtype.bytes * width
            loaded, total = loaded + size * self.entries, total + size * (self.entries // each)
        for node in self.reads:
            buffer = op_of(node, Load).buffer
            size = buffer.type.dtype.bytes
            each = width if self.column in free_variables(*node.args) else 1
            loaded += size * self.entries * each
            for term, extent in zip(node.args, buffer.type.shape, strict=False):
                size *= self.met(term, extent, width)
            total += size
        return total if loaded >= 2 * total else 0

    def takes(self, order: Block, places: Buffer, starts: Buffer, width: int) -> list[Block]:
        """Nests that take as long: of the order, whose counters wait for each other's stores, on
        one core; of where each entry is, once for a tile of columns; of what entries share, once;
        of folds in order, of values in the cache if they are read again; else of values twice, as
        they are read in no order.
        """
        alone = map_loops(order, lambda s: replace(s, role="scan"))
        blocks, usual, columns = starts.type.shape[0], self.usual(starts), self.shape[-1]
        at = apply("add", self.row, apply("multiply", self.block, constant(self.rows)))
        at = substitute((at,), {self.block: constant(0)})[0] if blocks == 1 else at
        entry = apply("add", apply("multiply", at, constant(usual)), self.turn)
        shared, near = self.shared.items(), dict[Node, Node]()
        for term, (which, _) in shared:
            near[term] = _near(term.type.dtype, (which, self.column))
        again = bool(self.read(width))
        for node in self.reads if again else []:
            buffer = op_of(node, Load).buffer
            near[node] = _near(buffer.type.dtype, node.args[: buffer.type.rank])
        (value,) = substitute(substitute((self.value,), near), {self.entry: entry})
        found = cast(make(Load(places), self.entry), i64)
        parts = [(self.entry, self.entries, -(-columns // TILE), found)]
        parts += [] if again else [(self.entry, self.entries, columns, self.value)]
        for term, (which, each) in shared:
            (once,) = substitute((term,), {which: self.row})
            parts.append((self.row, self.entries // each, columns, once))
        outer = [(a, self.shape[d]) for d, a in self.outer.items()]
        made = [around(outer, (self.copies(*part),)) for part in parts]
        return [alone, *made, self.folds(places, starts, width, value)]

    def copies(self, over: Node, extent: int, columns: int, value: Node) -> For:
        """Stores of a value of every entry, or of every row that is read, of so many columns."""
        made = Buffer("made", TensorType(value.type.dtype, (columns,)), "local")
        return loop(over, extent, loop(self.column, columns, Store(made, (self.column,), value)))

    def met(self, term: Node, extent: int, width: int) -> int:
        """How many values an index takes, as far as entries and columns decide."""
        axes = free_variables(term)
        if self.column in axes:
            return min(width, extent)
        if self.entry not in axes:
            return 1
        low, high = bounds(term, self.ranges)
        return int(min(high - low + 1, extent))

    def order(self, places: Buffer, starts: Buffer, blocks: int) -> Block:
        """Sort the entries of each block."""
        size = self.named + 1
        counts, moved = (Buffer(n, TensorType(i32, (size,)), "local") for n in ("counts", "moved"))
        first, last = self.ends(blocks)
        fold = Fold(("acc0",), SUM, (i32,))
        count = make(Load(counts), self.row)
        begin = apply("add", apply("subtract", fold.running[0], count), cast(first, i32))
        sums = Store(starts, (self.block, self.row), begin), Store(moved, (self.row,), begin)
        free = cast(make(Load(moved), self.at), i64)
        live = apply("lt", self.at, constant(self.rows)) if self.op.beyond else None
        tally = replace(one_more(counts, self.at), mask=live)
        move = Store(places, (free,), cast(self.entry, i32)), one_more(moved, self.at)
        move = tuple(replace(s, mask=live) for s in move)
        body: Block = (
            Local(counts),
            Local(moved),
            clear(counts),
            loop(self.entry, last, tally, role="scan", first=first),
            loop(self.row, size, Update(fold, (count,)), *sums, role="scan", folds=(fold,)),
            loop(self.entry, last, *move, role="scan", first=first),
        )
        return renumber((loop(self.block, blocks, *body),))

    def folds(self, places: Buffer, starts: Buffer, width: int, known: Node | None = None) -> Block:
        """Fold the values of the entries of each segment; a known one as often as usual."""
        columns, strip, blocks = self.shape[-1], axis("strip"), starts.type.shape[0]
        part = apply("add", apply("multiply", strip, constant(width)), self.column)
        moved = {self.column: part} if width < columns else {}
        all_of = self.start, known or self.value, *self.shared
        start, value, *terms = substitute(all_of, moved)
        copies: Block = ()
        if known is None:
            copies, near = self.copied(blocks, width, terms)
            value = substitute((value,), near)[0]
            (value,) = substitute((value,), {self.entry: cast(make(Load(places), self.turn), i64)})
        sums, some = self.segment(starts, value, known is not None)
        place, here = substitute(self.place(self.row), moved), (self.row, self.column)
        if blocks == 1:
            both = self.combined(start, sums, some)
            store = Store(self.out, place, stored(both, self.out.type.dtype))
            body: Block = (*copies, self.each(width, sums, store))
        else:
            table = Buffer("table", TensorType(start.type.dtype, (self.rows, width)), "local")
            kept = make(Load(table), *here)
            added = Store(table, here, self.combined(kept, sums, some))
            body = (
                Local(table),
                self.each(width, Store(table, here, start)),
                loop(self.block, blocks, *copies, self.each(width, sums, added), role="scan"),
                self.each(width, Store(self.out, place, stored(kept, self.out.type.dtype))),
            )
        outer = [(a, self.shape[d]) for d, a in self.outer.items()]
        outer += [(strip, columns // width)] * bool(moved)
        return renumber(around(outer, body))

    def copied(
        self, blocks: int, width: int, terms: Sequence[Node]
    ) -> tuple[Block, dict[Node, Node]]:
        """Copies of what the entries of a block share, of these columns, and the loads of them.

        Columns of rows that lie far apart are in few sets of a cache, of which those of a copy
        fill all.
        """
        made, near = list[Stmt](), dict[Node, Node]()
        for term, (which, each) in zip(terms, self.shared.values(), strict=True):
            if blocks == 1 and isinstance(term.op, Load):
                continue
            most, row = self.part(blocks) // each, axis("copied")
            first = apply("multiply", self.block, constant(most))
            copy = Buffer(f"near{len(near)}", TensorType(term.type.dtype, (most, width)), "local")
            place, at, end = row, which, constant(most)
            if blocks > 1:
                place, at = apply("add", first, row), apply("subtract", which, first)
                left = apply("subtract", constant(self.entries // each), first)
                end = apply("minimum", end, left)
            (once,) = substitute((term,), {which: place})
            store = loop(self.column, width, Store(copy, (row, self.column), once))
            made += [Local(copy), loop(row, end, store)]
            near[term] = make(Load(copy), at, self.column)
        return tuple(made), near

    def shared_terms(self) -> dict[Node, tuple[Node, int]]:
        """The largest terms of the value that entries in turn share: by what, and how many."""
        found, met = dict[Node, tuple[Node, int]](), set[Node]()
        left = [self.value]
        while left:
            term = left.pop()
            if term in met or self.entry not in free_variables(term):
                continue
            met.add(term)
            which, each = self.shared_by(term)
            if which is None:
                left += reversed(term.args)
            else:
                found[term] = which, each
        return found

    def shared_by(self, term: Node) -> tuple[Node | None, int]:
        """The quotient by which alone a term that loads reads entries, and how many share one."""
        nodes = [*postorder(term)]
        by_entry = [n for n in nodes if function_of(n) == "floordiv" and n.args[0] is self.entry]
        if len(by_entry) != 1 or not any(isinstance(n.op, Load) for n in nodes):
            return None, 1
        which, each = by_entry[0], value_of(by_entry[0].args[1])
        axes = free_variables(*substitute((term,), {which: self.row}))
        across = self.column in axes and self.entry not in axes
        whole = across and each and self.entries % int(each) == 0
        return (which, int(each)) if whole else (None, 1)  # type: ignore[arg-type]

    def segment(self, starts: Buffer, value: Node, known: bool) -> tuple[For, Node]:
        """The fold of a row's entries of a block, and whether there are any."""
        blocks, usual = starts.type.shape[0], self.usual(starts)
        block, after = self.block, apply("add", self.row, constant(1))
        block = constant(0) if blocks == 1 else block
        lo, end = (cast(make(Load(starts), block, r), i64) for r in (self.row, after))
        hi = apply("minimum", end, apply("add", lo, constant(self.part(blocks))))
        fold = Fold(("acc0",), self.op.monoid, self.op.monoid.carriers((value.type.dtype,)))
        ends = (constant(0), constant(usual)) if known else (lo, hi)
        update = (Update(fold, (value,)),)
        sums = For(self.turn, *ends, update, role="reduce", folds=(fold,), usual=usual)
        return sums, apply("lt", lo, end)

    def part(self, blocks: int) -> int:
        """Entries of a block: whole rows of what entries share."""
        whole = lcm(*(each for _, each in self.shared.values()))
        return -(-self.entries // (blocks * whole)) * whole

    def ends(self, blocks: int) -> tuple[Node, Node]:
        """Where a block of entries begins and ends."""
        if blocks == 1:
            return constant(0), constant(self.entries)
        part = constant(self.part(blocks))
        first = apply("multiply", self.block, part)
        return first, apply("minimum", apply("add", first, part), constant(self.entries))

    def usual(self, starts: Buffer) -> int:
        """Entries of a segment, on average."""
        return -(-self.entries // (starts.type.shape[0] * self.named))

    def combined(self, known: Node, sums: For, some: Node) -> Node:
        """What is known with the fold of a segment; as it is where that is empty."""
        (both,) = self.op.monoid.combine((known,), sums.folds[0].accs)
        return apply("where", some, both, known)

    def each(self, width: int, *body: For | Store) -> For:
        """Every column of every row."""
        return loop(self.row, self.rows, loop(self.column, width, *body))


def _near(dtype: DType, index: Sequence[Node]) -> Node:
    """A load from a buffer as small as that it is in the cache."""
    kind = TensorType(dtype, (*(1 for _ in index[1:]), TILE))
    return make(Load(Buffer("near", kind, "local")), *index)


def by_segments(
    node: Node, buffers: Buffers, out: Buffer, taken: Collection[str], tables: Tables, cache: int
) -> tuple[list[Made], list[Block]]:
    """The kernels, and nests that take as long; none for a scatter that is not of rows.

    The cache, in bytes, is to hold what a block reads of as many columns as a table has: entries
    are in blocks if they read values again.
    """
    op, shape = op_of(node, Scatter), node.type.shape
    known = all(map(is_short, (*shape, *node.args[2].type.shape)))
    last = op.monoid is LAST  # a fold of the entries of a row may have them in any order
    if last or not known or op.axis == len(shape) - 1 or shape[-1] < LEAST:
        return [], []
    made = _Segments(node, buffers, out)
    if not made.is_of_rows or len(op.monoid.carriers((made.value.type.dtype,))) > 1:
        return [], []
    blocks, (_, width) = 1, tables(made.named, shape[-1])
    while blocks < MOST_BLOCKS and made.read(width) > blocks * cache:
        blocks *= 2
    if blocks == 1 and made.copies_bytes(width) > cache:
        made.shared = {}  # each entry computes its own
    plain = all(isinstance(term.op, Load) for term in made.shared)
    width = shape[-1] if blocks == 1 and plain else width
    places = Buffer(fresh(f"{out.name}_order", {*taken}), TensorType(i32, (made.entries,)))
    starts = Buffer(
        fresh(f"{out.name}_starts", {*taken}), TensorType(i32, (blocks, made.named + 1))
    )
    order, held = made.order(places, starts, blocks), (places, starts, width)
    kernels = [(places.name, held[:2], order), (out.name, (out,), made.folds(*held))]
    return kernels, made.takes(order, *held)
