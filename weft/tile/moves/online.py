"""Merges kernels that pass on rows into one, over blocks of rows and chunks of their columns.

kernel, held = online(members, sides=(64, 64), units=True)

The body of each merged kernel is split into folds along the columns, maps of them, sums along them
for other loops, and stores once per row. A running sum of terms that scale with exp(s - maximum) is
rescaled when the running maximum grows, as in online softmax. Where the last block has fewer rows,
those that there are not read the last one (zeros for matrix units), and are not stored.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count

from weft.core.node import Node, make, rebuild, substitute
from weft.core.types import bf16, f16, f32
from weft.scalar import nest
from weft.scalar.blocks import access, loads, locals_in, loops_in, map_loops, nodes
from weft.scalar.monoid import SUM
from weft.scalar.nest import Block, Buffer, For, Kernel, Load, Store, Update, free_variables
from weft.scalar.ops import apply, apply_all, axis, cast, constant, has_symbol, multiply
from weft.scalar.structure import renumber
from weft.tile.analysis.access import factors, folded, narrow, trips
from weft.tile.analysis.degree import NotByChunks
from weft.tile.moves.chunks import AT, COLUMN, START, Chunks
from weft.tile.moves.loops import full, guarded, nested
from weft.tile.moves.merge import ROW, leading, merged_kernel, rows_of, shared_depth

Sides = tuple[int, int]  # rows of a block, and columns of a chunk


def online(members: Sequence[Kernel], sides: Sides, units: bool) -> tuple[Kernel, int]:
    """The kernel, and the bytes that it hands over between its nests; NotByChunks if not right.

    members     they share loops, the last of them over rows
    units       whether the target has units for products of 16-bit matrices
    """
    one = _Online(members, sides, units).kernel()
    return one, sum(b.type.bytes for b in locals_in(one.body))


class _Online(Chunks):
    """The merged kernel, as it is built."""

    def __init__(self, members: Sequence[Kernel], sides: Sides, units: bool) -> None:
        depth = shared_depth(members)
        handed = rows_of(members, depth)
        long = {tuple(along.values()) for along in handed.values() if along}
        if len(long) != 1 or any(len(shape) != 1 for shape in long):
            raise NotByChunks
        (length,) = long.pop()
        if any(map(has_symbol, (constant(length), leading(members[0])[depth - 1].hi))):
            raise NotByChunks  # blocks of rows, and chunks of them, have literal ends so far
        super().__init__(*sides, length)
        self.members, self.handed, self.depth, self.units = members, handed, depth, units
        loops = leading(members[0])[:depth]
        self.outer = [replace(f, axis=axis(f"outer{n}")) for n, f in enumerate(loops)]
        self.rows = trips(loops[-1])
        self.uneven = self.rows % self.block != 0
        self.local: dict[Buffer, Buffer] = {}
        self.scalars: dict[Buffer, Node] = {}  # what is handed over once for a row

    def kernel(self) -> Kernel:
        axes, accs = count(), count()
        for member in self.members:
            self.take(member, renumber(member.body, axes, accs))
        self.close()
        held = dict.fromkeys(s.held for s in self.states.values())
        scale = [self.scale] if self.top is not None else []
        end = constant(-(-self.length // self.chunk) * self.chunk)
        if self.last is not None and all(s.void or s is self.top for s in self.states.values()):
            end = apply("minimum", end, self.last)
        read = loads(*nodes(tuple(self.each)))
        kept = [b for b in self.kept if b in read]
        each = without(tuple(self.each), {*self.kept}.difference(kept))
        chunks = For(AT, constant(0), end, each, self.chunk, "scan")
        held = map(nest.Local, (*held, *scale, *kept))
        body = (*held, *self.start, chunks, *self.finish)
        end, _ = full(self.outer[-1], self.block)
        rows = replace(self.outer[-1], axis=START, hi=end, step=self.block)
        body = nested([*self.outer[:-1], rows], body)
        return merged_kernel(self.members, self.handed, body)

    # ---- pieces of a member

    def take(self, member: Kernel, body: Block) -> None:
        loops = leading(replace(member, body=body))[: self.depth]
        self.own = {f.axis: o.axis for f, o in zip(loops, self.outer, strict=True)}
        self.row = loops[-1].axis
        self.own[self.row] = apply("add", START, ROW)
        for stmt in loops[-1].body:
            if isinstance(stmt, For):
                self.loop(stmt)
            elif isinstance(stmt, Store) and stmt.buffer in self.handed:
                self.scalars[stmt.buffer] = self.over(stmt.value, None)
            elif isinstance(stmt, Store):
                self.close()
                self.finish += self.by_row((self.stored(stmt, self.over(stmt.value, None)),))
            else:
                raise NotByChunks

    def loop(self, stmt: For) -> None:
        whole = stmt.lo is constant(0) and stmt.step == 1
        inner = list(loops_in(stmt.body))
        stores = [s for s in stmt.body if isinstance(s, Store)]
        maps = bool(stores) and all(s.buffer in self.handed for s in stores)
        if whole and stmt.role == "reduce" and stmt.extent == self.length and not inner:
            self.folds(stmt)
        elif whole and stmt.role == "free" and stmt.extent == self.length and maps:
            self.map(stmt, stores, inner)
        else:
            self.sums(stmt)

    def folds(self, stmt: For) -> None:
        for update in stmt.body:
            if not isinstance(update, Update) or len(update.values) != 1 or update.partial:
                raise NotByChunks
            fold, value = update.fold, self.over(update.values[0], stmt.axis)
            if len(fold.labels) != 1 or fold.monoid.function is None:
                raise NotByChunks
            state = self.state(fold, value, ())
            column = self.column(value)
            column.folds.append(fold)
            column.body.append(self.inside(Update(fold, (self.here(value),))))
            self.ends.append(state)

    def map(self, stmt: For, stores: Sequence[Store], inner: Sequence[For]) -> None:
        """Compute an intermediate for each column of a chunk."""
        made: list[Store] = []
        if inner:
            self.close()
        for store in stores:
            value = self.over(store.value, stmt.axis)
            held = self.local[store.buffer] = self.buffer(store.buffer.name, value)
            self.values[held] = value = self.masked(value)
            made.append(Store(held, (ROW, COLUMN), self.here(value)))
        if not inner:
            self.column(*(s.value for s in made)).body += made
            self.made.update((make(Load(s.buffer), *s.index), self.values[s.buffer]) for s in made)
            return
        sums = [s for s in stmt.body if isinstance(s, For)]
        if len(sums) + len(stores) != len(stmt.body) or any(s.role != "reduce" for s in inner):
            raise NotByChunks
        before = tuple(s.map_terms(lambda t: self.here(self.over(t, stmt.axis))) for s in sums)
        if any(self.degrees.of(t) for t in nodes(before)):
            raise NotByChunks
        self.each += self.by_row(nested([self.of_chunk()], (*before, *made)))

    def sums(self, stmt: For) -> None:
        """Sums along the columns, for other loops inside a row: kept from chunk to chunk."""
        found = folded(stmt)
        if found is None or len(found[1]) != 1 or len(found[2]) != 1:
            raise NotByChunks
        free, (reduce,), (update,), stores, _ = found
        fold, sizes = update.fold, [f.extent or 0 for f in free]
        even = all(f.lo is constant(0) and f.step == 1 for f in (*free, reduce))
        if fold.monoid is not SUM or not even or 0 in sizes or reduce.extent != self.length:
            raise NotByChunks
        parts = [self.over(f, reduce.axis) for f in factors(update.values[0])]
        own = [p for p in parts if self.after(p)]  # of the row alone, known at its end
        rest = self.sides([p for p in parts if p not in own], free, stores)
        self.close()
        state = self.state(fold, rest, sizes)
        places = [f.axis for f in free]
        update = Update(fold, (self.here(rest),))
        zero = all(isinstance(narrow(f).op, Load) for f in factors(rest))  # beyond the last column
        add = nested([self.of_chunk("reduce", [fold])], (update if zero else self.inside(update),))
        kept = state.load(*places)
        scaled = apply("multiply", kept, self.factor()) if state.degree else kept
        kept = Store(state.held, (ROW, *places), apply("add", scaled, fold.accs[0]))
        self.each += self.by_row(nested(free, (*add, kept)))
        whole = apply_all(multiply, [self.whole_fold(state, places), *own])
        values = substitute(tuple(self.over(s.value, None) for s in stores), {fold.accs[0]: whole})
        done = tuple(map(self.stored, stores, values))
        self.finish += self.by_row(nested(free, done))

    def sides(self, parts: list[Node], free: Sequence[For], stores: Sequence[Store]) -> Node:
        """The product of a sum, its side that the other loops do not move computed before it.

        It is rounded to 16 bits where the other side and the results are, as eager does, if the
        target has units for such products.
        """
        axes = {f.axis for f in free}
        left = [p for p in parts if axes.isdisjoint(free_variables(p))]
        right = [p for p in parts if p not in left]
        if not left or not right:
            return apply_all(multiply, parts)
        side, dtype = apply_all(multiply, left), left[0].type.dtype
        results = {narrow(p).type.dtype for p in right} | {s.buffer.type.dtype for s in stores}
        weight = self.degrees.of(side) == 1 and self.is_weight(side)
        fits = [bf16, f16] if weight else [bf16]  # in their range
        narrower = next((d for d in fits if results == {d}), dtype)
        held = narrower if self.units and dtype is f32 else dtype
        if isinstance(narrow(side).op, Load) and narrow(side).type.dtype is held:
            return apply_all(multiply, parts)
        load = self.keep(f"side{len(self.states)}", cast(side, held))
        return apply_all(multiply, [cast(load, dtype), *right])

    def stored(self, stmt: Store, value: Node) -> Store:
        """A store of what a row's end tells, of rows that there are."""
        ends = {a: self.whole_fold(s) for a, s in self.states.items() if s.held.type.rank == 1}
        value = substitute((value,), ends)[0]
        index = substitute(stmt.index, self.own)
        there = apply("lt", self.own[self.row], constant(self.rows))
        return replace(stmt, index=index, value=value, mask=there if self.uneven else None)

    # ---- terms

    def over(self, term: Node, column: Node | None) -> Node:
        """A member's term over the block's own buffers, rows and columns."""

        def change(node: Node) -> Node | None:
            if not isinstance(node.op, Load) or node.op.buffer not in self.handed:
                return None
            buffer = node.op.buffer
            if buffer in self.scalars:
                return self.scalars[buffer]
            others = [node.args[p] for p in self.handed[buffer]]
            if buffer not in self.local or others != [column] or node.op.masked:
                raise NotByChunks
            load = make(Load(self.local[buffer]), ROW, COLUMN)
            return self.made.get(load, load)

        term = rebuild((term,), change)[0]
        if self.uneven and self.units:  # slabs of these are of zeros beyond
            term = guarded(term, self.row, apply("lt", self.row, constant(self.rows)))
        elif self.uneven:
            last = {self.row: apply("minimum", self.row, constant(self.rows - 1))}
            term = rebuild((term,), lambda n: substitute((n,), last)[0] if access(n) else None)[0]
        if column is not None and self.length % self.chunk:
            term = guarded(term, column, apply("lt", column, constant(self.length)))
        here = {} if column is None else {column: apply("add", AT, COLUMN)}
        return substitute((term,), {**self.own, **here})[0]

    def after(self, term: Node) -> bool:
        """Whether a term is known at a row's end alone, for all its columns."""
        free = free_variables(term)
        return free.isdisjoint((AT, COLUMN)) and any(isinstance(n.op, nest.Acc) for n in free)


def without(block: Block, buffers: Collection[Buffer]) -> Block:
    """The block without what is stored to these buffers."""
    kept = tuple(s for s in block if not isinstance(s, Store) or s.buffer not in buffers)
    return map_loops(kept, lambda s: replace(s, body=without(s.body, buffers)))
