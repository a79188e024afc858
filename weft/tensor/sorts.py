"""Sorts as nests: by the rank of each element of a row, or by the digits of its keys.

ways = ways_to_sort(node, (1, 2))                               # {"digits8x2": (8, 2), ...}
kernels = sorting_kernels(group, buffers, written, ways["digits8x2"])
picks      the first few are kept in order beside each row: an element that comes before the last
           of them goes in, and blocks of elements of which none does are passed over
ranks      an element goes where as many elements are as come before it: n^2 comparisons in lanes
digits8    stable passes over digits of 8 bits, the lowest first (LSD radix sort, Knuth, The Art of
           Computer Programming 3, 5.2.5): count each digit, sum the counts, move the elements
digits8x2  the same, where each row is in two blocks, which count and move apart
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from weft.core.node import Node, make, op_of, substitute
from weft.core.text.graph import fresh
from weft.core.types import DType, TensorType, i32, i64
from weft.scalar.intervals import bounds
from weft.scalar.monoid import MIN, SUM
from weft.scalar.nest import Block, Buffer, Fold, For, Load, Local, Stmt, Store, Update
from weft.scalar.ops import CASTS, apply, axis, cast, constant
from weft.scalar.sizes import hint, is_short
from weft.scalar.structure import renumber
from weft.tensor.bits import order, packed, unpacked
from weft.tensor.build import FEW
from weft.tensor.nests import around, loop
from weft.tensor.ops import Sort, box
from weft.tensor.terms import Terms, stored

WIDTHS = 4, 8, 11  # bits of a digit
PASSED = 16  # elements of a block that may be passed over
LEAST = 256  # elements of a block
Buffers = Mapping[Node, Buffer]
Made = tuple[str, tuple[Buffer, ...], Block]  # a kernel's name, what it writes, its nest


def ends(block: Node, blocks: int, extent: int) -> tuple[Node, Node]:
    """Where a block of an axis begins and ends."""
    if blocks == 1:
        return constant(0), constant(extent)
    part = constant(-(-extent // blocks))
    first = apply("multiply", block, part)
    return first, apply("minimum", apply("add", first, part), constant(extent))


def one_more(table: Buffer, place: Node) -> Store:
    """Count one of what has that place in a table."""
    more = apply("add", make(Load(table), place), constant(1, table.type.dtype))
    return Store(table, (place,), more)


def clear(table: Buffer) -> For:
    entry = axis("digit")
    return loop(entry, table.type.shape[0], Store(table, (entry,), constant(0, table.type.dtype)))


@dataclass
class _Sorting:
    """A group of results of one sort, and how the nests of one way name what they make."""

    outputs: Mapping[int, Node]  # by the number of the result
    buffers: Buffers
    written: Buffers
    taken: set[str]

    def __post_init__(self) -> None:
        node = next(iter(self.outputs.values()))
        self.op, self.operands, self.key = op_of(node, Sort), node.args, node.args[0]
        self.shape = self.key.type.shape
        self.extent = self.shape[self.op.axis]
        self.counted = i32 if is_short(self.extent) else i64  # the dtype of places
        self.ranges = box(self.shape, "o")
        self.index = tuple(self.ranges)
        self.element = self.index[self.op.axis]
        self.rows = [(a, n) for a, n in zip(self.index, self.shape, strict=True)
                     if a is not self.element]  # fmt: skip
        self.accs = count()

    @property
    def name(self) -> str:
        """What the first of its kernels to write an output is called."""
        return self.written[self.outputs[min(self.outputs)]].name

    # ---- the parts of nests

    def bits(self, terms: Terms, index: tuple[Node, ...]) -> tuple[Node, int, int]:
        value = terms.of(self.key, index)
        return order(value, self.key.type.dtype, self.op.descending)

    def placed(self, place: Node) -> tuple[Node, ...]:
        """The element of this row at that place."""
        return tuple(cast(place, i64) if a is self.element else a for a in self.index)

    def finish(self, terms: Terms, place: Node) -> Iterator[Store]:
        """Stores of the results of this element, where they are kept."""
        kept = apply("lt", cast(place, i64), constant(self.op.first)) if self.op.first else None
        for number, node in self.outputs.items():
            value = stored(terms.of(self.operands[number], self.index), node.type.dtype)
            yield Store(self.written[node], self.placed(place), value, kept)

    def made(self, name: str, outputs: Sequence[Buffer], body: Block) -> Made:
        return name, tuple(outputs), renumber(around(self.rows, body))

    # ---- by ranks

    def ranks(self) -> list[Made]:
        terms, n, other = Terms(self.buffers, self.ranges), self.extent, axis("other")
        key, *_ = self.bits(terms, self.index)
        keys = Buffer("keys", TensorType(key.type.dtype, (n,)), "local")
        mine, its = (make(Load(keys), a) for a in (self.element, other))
        earlier = apply("and", apply("eq", its, mine), apply("lt", other, self.element))
        before = apply("or", apply("lt", its, mine), earlier)
        fold = Fold(("acc0",), SUM, (self.counted,))
        ranked = Update(fold, (apply(CASTS[self.counted], before),))
        body = (
            Local(keys),
            loop(self.element, n, Store(keys, (self.element,), key)),
            loop(
                self.element,
                n,
                loop(other, n, ranked, role="reduce", folds=(fold,)),
                *self.finish(terms, fold.accs[0]),
            ),
        )
        return [self.made(self.name, [*self.written.values()], body)]

    # ---- by picks

    def picks(self, priced: bool = False) -> list[Made]:
        """With `priced`, what it takes: blocks that are not passed over stand behind the others."""
        terms, most, n = Terms(self.buffers, dict(self.ranges)), self.op.first, self.extent
        key, *_ = self.bits(terms, self.index)
        key = cast(key, i64) if self.key.type.dtype is i32 else key
        worst = constant(int(np.iinfo(key.type.dtype.numpy).max), key.type.dtype)
        keys, places = (
            Buffer(name, TensorType(dtype, (most,)), "local")
            for name, dtype in (("keys", key.type.dtype), ("places", self.counted))
        )
        entry, block, again, turn = axis("entry"), axis("block"), axis("again"), axis("turn")
        end = apply("minimum", apply("add", block, constant(PASSED)), constant(n))
        fold = Fold(("acc0",), MIN, (key.type.dtype,))
        last = make(Load(keys), constant(most - 1))
        update = Update(fold, (key,))
        least = loop(self.element, end, update, role="reduce", first=block, folds=(fold,))
        insert = loop(entry, most, *self.inserted(keys, places, key, worst, entry), role="scan")

        def where(condition: Node, variable: Node, body: Stmt) -> For:
            once = apply("minimum", cast(condition, i64), constant(1))
            return loop(variable, once, body, role="scan")

        def blocks(extent: int, *inside: Stmt) -> For:
            return For(block, constant(0), constant(extent), inside, PASSED, "scan")

        enters = apply("lt", key, last)
        some = loop(self.element, end, where(enters, turn, insert), role="scan", first=block)
        body: Block = (blocks(n, least, where(apply("lt", fold.accs[0], last), again, some)),)
        if priced:
            mark = Store(places, (cast(enters, i64),), constant(0, self.counted))
            some = loop(self.element, end, mark, role="scan", first=block)
            few = hint(most)
            met = math.ceil(few * (1 + math.log(max(1, hint(n) / few))))  # that enter, of a row
            rare = blocks(min(hint(n), met * PASSED), some), loop(self.element, met, insert)
            body = (blocks(n, least), *rare)
        clear = Store(keys, (entry,), worst), Store(places, (entry,), constant(0, self.counted))
        found = {self.element: cast(make(Load(places), entry), i64)}
        index = substitute(self.index, {self.element: entry})
        finish = [
            Store(s.buffer, index, substitute((s.value,), found)[0])
            for s in self.finish(terms, entry)
        ]
        first, end_ = loop(entry, most, *clear), loop(entry, most, *finish)
        body = (Local(keys), Local(places), first, *body, end_)
        return [self.made(self.name, [*self.written.values()], body)]

    def inserted(
        self, keys: Buffer, places: Buffer, key: Node, worst: Node, entry: Node
    ) -> Iterator[Store]:
        """Stores that put an element behind those that are not greater: from the last one on."""
        most = keys.type.shape[0]
        at = apply("subtract", constant(most - 1), entry)
        before = apply("subtract", at, constant(1))
        inside = apply("ge", before, constant(0))
        low = constant(-int(worst.op.value) - 1, key.type.dtype)  # type: ignore[attr-defined]
        previous = make(Load(keys, True), before, inside, low)
        moves, here = apply("lt", key, previous), apply("lt", key, make(Load(keys), at))
        zero, place = constant(0, self.counted), cast(self.element, self.counted)
        pairs = (
            (places, make(Load(places, True), before, inside, zero), place),
            (keys, previous, key),
        )
        for buffer, moved, own in pairs:  # keys last: both compare them
            rest = apply("where", here, own, make(Load(buffer), at))
            yield Store(buffer, (at,), apply("where", moves, moved, rest))

    # ---- by digits

    def digits(self, width: int, blocks: int) -> list[Made]:
        """All passes; each reads what the one before has moved."""
        terms, size = Terms(self.buffers, dict(self.ranges)), 1 << width
        _, low, bits = self.bits(terms, self.index)
        shifts = range(low, low + bits, width)
        carried = self.carried()
        starts = self.buffer("starts", self.counted, size * (blocks if blocks > 1 else len(shifts)))
        made = [] if blocks > 1 else [self.all_starts(starts, terms, shifts, width)]
        held: Buffers = self.buffers
        for number, shift in enumerate(shifts):
            terms = self.reading(held, carried) if number else terms
            digit = self.digit(terms, shift, width)
            if blocks > 1:
                starts = replace(starts, name=fresh(starts.name, self.taken))
                made += self.starts_of_blocks(starts, digit, size, blocks)
            last = number == len(shifts) - 1
            after = {} if last else self.moved(carried)
            first = 0 if blocks > 1 else number * size
            made.append(self.move(terms, after, digit, (starts, first, size), blocks))
            held = after
        return made

    def digit(self, terms: Terms, shift: int, width: int) -> Node:
        """The digit of an element from the bit `shift` on; the sign of a number is flipped."""
        key, low, bits = self.bits(terms, self.index)
        last = low + bits
        if self.key.type.dtype.kind in ("float", "int") and shift + width >= last:
            top = 1 << (last - 1)
            top = top - (1 << last) if last == key.type.dtype.bits else top
            key = apply("xor", key, constant(top, key.type.dtype))
        key = apply("shift_right", key, constant(shift, key.type.dtype)) if shift else key
        mask = constant((1 << min(width, last - shift)) - 1, key.type.dtype)
        return cast(apply("and", key, mask), i64)

    def buffer(self, stem: str, dtype: DType, *inner: int) -> Buffer:
        """Memory between kernels, so much for each row; all of a row's elements without `inner`."""
        shape = (*(n for _, n in self.rows), *inner) if inner else self.shape
        return Buffer(fresh(f"{self.name}_{stem}", self.taken), TensorType(dtype, shape))

    def carried(self) -> dict[Node, DType]:
        """What passes move, and its dtype: i32 where values are known to be short."""
        found: dict[Node, DType] = {}
        for node in (self.key, *(self.operands[r] for r in self.outputs if r)):
            found[node] = node.type.dtype
            if node not in self.buffers and found[node] is i64:
                terms = Terms(self.buffers, dict(self.ranges))
                low, high = bounds(terms.of(node, self.index), self.ranges)
                found[node] = i32 if low >= -(1 << 31) and high < 1 << 31 else i64
        return found

    def moved(self, carried: Mapping[Node, DType]) -> Buffers:
        """Memory between passes: words where there are two short values, to move both at once."""
        if len(carried) == 2 and all(d.compute.bits <= 32 for d in carried.values()):
            return dict.fromkeys(carried, self.buffer("moved", i64))
        return {node: self.buffer("moved", dtype) for node, dtype in carried.items()}

    def reading(self, held: Buffers, carried: Mapping[Node, DType]) -> Terms:
        """The terms of what was moved."""
        buffers = dict.fromkeys(held.values())
        if len(buffers) == len(held):
            return Terms(held, dict(self.ranges))
        terms = Terms({}, dict(self.ranges))
        values = unpacked(make(Load(next(iter(buffers))), *self.index), tuple(carried.values()))
        terms.memo.update({(n, self.index, None): v for n, v in zip(carried, values, strict=True)})
        return terms

    def counter(self, size: int, number: int = 0) -> Buffer:
        return Buffer(f"table{number}", TensorType(self.counted, (size,)), "local")

    def sums(self, extent: int, count: Node, to: Buffer, index: tuple[Node, ...]) -> For:
        """Store the sum of all counts before each."""
        fold = Fold((f"acc{next(self.accs)}",), SUM, (self.counted,))
        start = Store(to, index, apply("subtract", fold.running[0], count))
        update = Update(fold, (count,))
        return loop(axis("digit"), extent, update, start, role="scan", folds=(fold,))

    def all_starts(self, starts: Buffer, terms: Terms, shifts: Sequence[int], width: int) -> Made:
        """The kernel that counts the digits of all passes, whose order does not matter."""
        size, entry, rows = 1 << width, axis("digit"), tuple(a for a, _ in self.rows)
        tables = {shift: self.counter(size, i) for i, shift in enumerate(shifts)}
        tally = [one_more(t, self.digit(terms, s, width)) for s, t in tables.items()]
        body = (
            *map(Local, tables.values()),
            *map(clear, tables.values()),
            loop(self.element, self.extent, *tally, role="scan"),
        )
        for i, table in enumerate(tables.values()):
            at = (*rows, apply("add", entry, constant(i * size)))
            body = (*body, self.sums(size, make(Load(table), entry), starts, at))
        return self.made(starts.name, [starts], body)

    def starts_of_blocks(
        self, starts: Buffer, digit: Node, size: int, blocks: int
    ) -> Iterator[Made]:
        """Kernels that count each block's digits, and sum the counts of all."""
        rows, entry, block = tuple(a for a, _ in self.rows), axis("digit"), axis("block")
        counts, table = self.buffer("counts", self.counted, size * blocks), self.counter(size)
        first, last = ends(block, blocks, self.extent)
        tally = loop(self.element, last, one_more(table, digit), role="scan", first=first)
        at = (*rows, apply("add", apply("multiply", entry, constant(blocks)), block))
        keep = loop(entry, size, Store(counts, at, make(Load(table), entry)))
        body = loop(block, blocks, Local(table), clear(table), tally, keep)
        yield self.made(counts.name, [counts], (body,))
        here = (*rows, entry)
        summed = self.sums(size * blocks, make(Load(counts), *here), starts, here)
        yield self.made(starts.name, [starts], (summed,))

    def move(
        self,
        terms: Terms,
        after: Buffers,
        digit: Node,
        starts: tuple[Buffer, int, int],
        blocks: int,
    ) -> Made:
        """The kernel that moves each element behind those of smaller digits and of its own.

        `starts` has where each digit's begin, from an entry on, so many; nothing after: the
        results are stored.
        """
        buffer, offset, size = starts
        entry, block, table = axis("digit"), axis("block"), self.counter(size)
        place = make(Load(table), digit)
        moved = [
            Store(to, self.placed(place), stored(terms.of(node, self.index), to.type.dtype))
            for node, to in after.items()
        ]
        targets = list(dict.fromkeys((after or self.written).values()))
        if len(targets) < len(after):
            word = packed(*(terms.of(node, self.index) for node in after))
            moved = [Store(targets[0], self.placed(place), word)]
        moved = moved or [*self.finish(terms, place)]
        at = apply("multiply", entry, constant(blocks)) if blocks > 1 else entry
        at = apply("add", at, block if blocks > 1 else constant(offset))
        begin = make(Load(buffer), *(a for a, _ in self.rows), at)
        first, last = ends(block, blocks, self.extent)
        more = one_more(table, digit)
        body: Block = (
            Local(table),
            loop(entry, size, Store(table, (entry,), begin)),
            loop(self.element, last, *moved, more, role="scan", first=first),
        )
        body = (loop(block, blocks, *body),) if blocks > 1 else body
        return self.made(targets[0].name, targets, body)


Way = tuple[int, int]  # the width of a digit, and in how many blocks rows are; none without digits


def ways_to_sort(node: Node, blocks: Sequence[int] = (1,)) -> dict[str, Way]:
    """The ways to sort, by name."""
    op, key = op_of(node, Sort), node.args[0].type
    ways = {"ranks": (0, 1)}
    if 0 < op.first <= FEW and key.dtype is not i64:
        ways["picks"] = 0, 0
    for n in dict.fromkeys(blocks):
        if n == 1 or hint(key.shape[op.axis]) >= n * LEAST:
            ways.update((f"digits{w}" + f"x{n}" * (n > 1), (w, n)) for w in WIDTHS)
    return ways


def sorting_kernels(
    group: Sequence[Node], buffers: Buffers, written: Buffers, way: Way = (8, 1),
    taken: Collection[str] = (), priced: bool = False,
) -> list[Made]:  # fmt: skip
    """The kernels of a group of results of one sort; what they pass on has names beside `taken`.

    With `priced`, nests that take as long as these do where elements are in no order.
    """
    outputs = {op_of(n, Sort).result: n for n in group}
    buffers = {n: b for n, b in buffers.items() if n not in group}
    sorting = _Sorting(outputs, buffers, written, {*taken})
    if way[0]:
        return sorting.digits(*way)
    return sorting.ranks() if way[1] else sorting.picks(priced)
