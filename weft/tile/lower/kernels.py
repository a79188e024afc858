"""Tile level to kernel level: tails peeled, register axes unrolled and jammed, vectors as lanes.

before  for b0 in 0..18 by 16:                  after   y{16}[0] = ...
            for a0 in b0..min(b0 + 16, 18):             y{16}[16] = ... count 2
                y[a0] = ...
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import reduce

from weft.core.node import Node, make, postorder, substitute
from weft.core.text.graph import fresh
from weft.core.types import TensorType
from weft.kernel.ops import Box, Extract, Lanes, Matrix, Mma, Pack, Splat, VectorLoad, VectorStore
from weft.scalar import nest
from weft.scalar.blocks import address, map_loops, substitute_block
from weft.scalar.index import simplify
from weft.scalar.nest import Block, Buffer, Fold, For, Kernel, Local, Program, Stmt, Store, Update
from weft.scalar.ops import Constant, apply, constant, lt
from weft.scalar.reach import ranges_inside
from weft.scalar.structure import substituted
from weft.scalar.updates import fused, guarded
from weft.tile.analysis.access import Ranges, trips
from weft.tile.analysis.boxes import box_of
from weft.tile.analysis.fragments import GROUP, axis_of, column_of, goes_by_rows, operands, pairs
from weft.tile.lower.fold_lanes import fold_lanes
from weft.tile.lower.lanes import Lowering, Vector, count_of, flat
from weft.tile.lower.squares import Copy, Side, Square, square, transposed
from weft.tile.moves.peel import declared, peel, simplify_block


class _Folds:
    """Accumulators of one fold: per distinct outer copy, one for each unrolled part."""

    def __init__(self, fold: Fold, axes: frozenset[Node], horizontal: bool, outer: int) -> None:
        self.fold, self.axes, self.horizontal = fold, axes, horizontal
        self.outer = outer  # register axes of the reductions this fold is inside of
        self.parts: dict[tuple[int, ...], dict[tuple[int, ...], Fold]] = {}
        self.lane: dict[tuple[int, ...], int] = {}  # of a vector for all outer copies

    def key(self, copy: Copy) -> tuple[int, ...]:
        """Copies that agree on every axis the fold depends on share its accumulators."""
        around = (*copy.free.items(), *copy.reduce[: self.outer])
        return tuple(u for a, u in around if a in self.axes)

    def part(self, copy: Copy) -> tuple[int, ...]:
        """Which of its own unrolled parts a copy folds into."""
        return tuple(u for _, u in copy.reduce[self.outer :])

    def all(self) -> tuple[Fold, ...]:
        return tuple(dict.fromkeys(f for parts in self.parts.values() for f in parts.values()))


def dependences(body: Block) -> dict[Node, frozenset[Node]]:
    """Axes each accumulator depends on, through the accumulators it reads; and each axis.

    An axis moves with the axes its loop starts from.
    """
    found: dict[Node, frozenset[Node]] = {}
    for stmt in nest.walk(body):
        if isinstance(stmt, For):
            start = nest.free_variables(stmt.lo)
            found[stmt.axis] = frozenset({stmt.axis}).union(*(found[a] for a in start))
        if isinstance(stmt, Update):
            read = (found.get(n, frozenset()) for n in nest.free_variables(*stmt.values))
            axes = frozenset[Node]().union(*read)
            found.update((acc, found.get(acc, frozenset()) | axes) for acc in stmt.fold.accs)
    return found


class _Expansion:
    """Expands one kernel's body at the tile level into statements of the kernel level."""

    def __init__(self, body: Block) -> None:
        self.depends = dependences(body)
        self.folds: dict[Fold, _Folds] = {}
        self.labels: set[str] = set()
        self.around: list[For] = []  # the loops it is inside of
        self.columns: dict[object, tuple[Buffer, set[int]]] = {}

    def block(self, stmts: Block, copies: list[Copy], ranges: Ranges) -> Iterator[Stmt]:
        for stmt in stmts:
            if isinstance(stmt, For):
                yield from self.loop(stmt, copies, ranges)
            elif isinstance(stmt, Update):
                yield from self.update(stmt, copies, ranges)
            elif isinstance(stmt, Store):
                yield from self.store(stmt, copies, ranges)
            elif isinstance(stmt, Local):
                yield Local(flat(stmt.buffer))  # a peeled rest may declare it again: `once`
            else:
                raise AssertionError(f"{type(stmt).__name__} at the tile level")

    def loop(self, stmt: For, copies: list[Copy], ranges: Ranges) -> Iterator[Stmt]:
        for fold in stmt.folds:
            axes = frozenset[Node]().union(*(self.depends.get(a, frozenset()) for a in fold.accs))
            horizontal = any(isinstance(s, For) and s.lanes for s in (stmt, *nest.walk(stmt.body)))
            self.folds[fold] = _Folds(fold, axes, horizontal, len(copies[0].reduce))
        special = {"register": self.unroll, "box": self.box}
        special |= dict.fromkeys(("mma", "warpgroup"), self.matrix)
        expand = self.lanes if stmt.lanes else special.get(stmt.bind, self.serial)
        self.around.append(stmt)
        body = list(expand(stmt, copies, ranges))
        self.around.pop()
        folds = tuple(f for fold in stmt.folds for f in self.folds[fold].all())
        yield from declared(replace(stmt, folds=folds), body)
        for fold in stmt.folds:
            self.finish(self.folds.pop(fold), copies)

    def serial(self, stmt: For, copies: list[Copy], ranges: Ranges) -> Iterator[Stmt]:
        ends = {substitute((stmt.lo, stmt.hi), c.values) for c in copies}
        assert len(ends) == 1, f"loop {stmt.label}: bounds differ between copies"
        lowering = Lowering(None, ranges)  # of bounds that are loaded
        lo, hi = (lowering.term(simplify(end, ranges)) for end in ends.pop())
        stmt = replace(stmt, lo=lo, hi=hi)
        body = tuple(self.block(stmt.body, copies, ranges_inside(stmt, ranges)))
        extent = stmt.extent
        kept = (*nest.PARALLEL, *nest.PIPELINE)
        if extent is not None and 0 < extent <= stmt.step and stmt.bind not in kept:
            yield from simplify_block(substitute_block(body, {stmt.axis: lo}), ranges)
            return
        bind = stmt.bind if stmt.bind in (*kept, *nest.ASKED) else "serial"
        yield For(
            stmt.axis, lo, hi, body, stmt.step, stmt.role, bind, grain=stmt.grain, usual=stmt.usual
        )

    def unroll(self, stmt: For, copies: list[Copy], ranges: Ranges) -> Iterator[Stmt]:
        inner: list[Copy] = []
        for copy in copies:
            lo, hi = (simplify(t, ranges) for t in substitute((stmt.lo, stmt.hi), copy.values))
            span = simplify(apply("subtract", hi, lo), ranges)
            told = f"register loop {stmt.label} has no literal length"
            assert isinstance(span.op, Constant), told
            extent = int(span.op.value)
            for n, u in enumerate(range(0, extent, stmt.step)):
                at = simplify(apply("add", lo, constant(u)), ranges)
                free = {**copy.free, stmt.axis: n} if stmt.role == "free" else copy.free
                reduce = (*copy.reduce, (stmt.axis, n)) if stmt.role == "reduce" else copy.reduce
                side = (Side(stmt.axis, lo, n, extent),) if stmt.step == 1 else ()
                values, sides = {**copy.values, stmt.axis: at}, (*copy.sides, *side)
                inner.append(Copy(values, free, reduce, copy.vector, sides))
        if stmt.role != "scan":
            yield from self.block(stmt.body, inner, ranges)
            return
        each = len(inner) // len(copies)
        for n in range(each):  # in order
            yield from self.block(stmt.body, inner[n::each], ranges)

    def matrix(self, stmt: For, copies: list[Copy], ranges: Ranges) -> Iterator[Stmt]:
        """A sum in the matrix units: an instruction for each 16 by 8 of the results."""
        found, update = operands(stmt.body), stmt.body[0]
        assert found is not None and isinstance(update, Update), f"loop {stmt.label} is no product"
        lanes = [f for f in self.around if f.bind == "thread"]
        results = [f for f in self.around if f.bind == "register" and f.role == "free"]
        rows, columns = (axis_of(s, results[::-1]) for s in (found.left, found.right))
        own = self.folds[update.fold]

        def place(copy: Copy) -> tuple[object, ...]:
            """By its atom first."""
            others = tuple(n for a, n in copy.free.items() if a not in (rows, columns))
            return others, copy.free[rows], copy.free[columns]

        copies = sorted(copies, key=place)
        if stmt.bind == "warpgroup":
            start = {rows: lanes[-5].axis, columns: lanes[-3].lo, stmt.axis: stmt.lo}
            sides = ((found.left, GROUP), (found.right, lanes[-3].step))
            yield self.group(own, copies, [self.whole(*s, stmt, start, ranges) for s in sides])
            return
        lowering = Lowering(None, ranges)
        for n in range(0, len(copies), 4):
            four = copies[n : n + 4]
            sums: list[Fold] = []
            for copy in four:
                parts = own.parts.setdefault(own.key(copy), {})
                sums.append(parts.setdefault((), parts.get(()) or self.fresh(update.fold, 1)))
            places = [four[0].values[rows], four[2].values[rows]]
            column = column_of(four[0].values[columns], lanes)
            held = pairs(found.left, rows, places, stmt, lanes)
            held += pairs(found.right, columns, [column], stmt, lanes)
            exact = (concrete(pair, four[0], ranges) for pair in held)
            terms = [make(Pack(), *map(lowering.term, pair)) for pair in exact]
            yield Mma(tuple(sums), tuple(terms[:4]), tuple(terms[4:]))

    def group(self, own: _Folds, copies: list[Copy], sides: list[Node]) -> Mma:
        """A product by a warpgroup: one vector for all results of a thread."""
        vector = None
        for lane, copy in enumerate(copies):
            parts = own.parts.setdefault(own.key(copy), {})
            vector = vector or parts.get(()) or self.fresh(own.fold, len(copies))
            parts[()], own.lane[own.key(copy)] = vector, lane
        assert vector is not None
        return Mma((vector,), (sides[0],), (sides[1],))

    def whole(self, side: Node, rows: int, k: For, start: dict[Node, Node], ranges: Ranges) -> Node:
        """A side's matrix, as it lies in its slab from where the warpgroup's results start."""
        slab: Buffer = side.op.buffer  # type: ignore[attr-defined]
        where = address(slab, substitute(side.args, start), ranges)
        by_rows = goes_by_rows(side, k.axis) or False
        leading = slab.type.layout[-3] if by_rows and rows > slab.type.shape[-1] else 0
        return make(Matrix(flat(slab), rows, trips(k), by_rows, leading), where)

    def box(self, stmt: For, copies: list[Copy], ranges: Ranges) -> Iterator[Stmt]:
        """A slab or a piece of one, by the copy engine."""
        found = box_of(stmt)
        region = found and found.region()
        assert found is not None and region, f"loop {stmt.label} is no box"
        facts = zip(*((d.size, d.stride, d.side) for d in region), strict=True)
        tensor: Buffer = found.store.value.op.buffer  # type: ignore[attr-defined]
        source = make(Box(flat(tensor), *facts), *(d.start for d in region))
        start = {f.axis: f.lo for f in (found.outer, found.line)}
        slab = found.store.buffer
        where = address(slab, substitute(found.store.index, start), ranges)
        one, *others = {concrete((where, source), c, ranges) for c in copies}
        assert not others, f"loop {stmt.label}: boxes differ between copies"
        index, value = (simplify(t, ranges) for t in one)
        yield VectorStore(flat(slab), index, value, value.type.lanes, how="async")

    def lanes(self, stmt: For, copies: list[Copy], ranges: Ranges) -> Iterator[Stmt]:
        inner: list[Copy] = []
        for copy in copies:
            assert copy.vector is None, f"vector axis {stmt.label} inside {copy.vector}"
            lo, hi = (simplify(t, ranges) for t in substitute((stmt.lo, stmt.hi), copy.values))
            count = count_of(lo, hi, stmt.lanes, ranges)
            count = count and Lowering(None, ranges).term(count)  # of bounds that are loaded
            vector = Vector(stmt.axis, lo, stmt.lanes, count, stmt.role)
            # the origin is the same for all lanes: register copies are told apart by it
            inner.append(replace(copy, values=dict(copy.values), vector=vector))
        yield from self.block(stmt.body, inner, ranges)

    def column(self, stmt: Store, block: Square, lowered: Stmt) -> Iterator[Stmt]:
        """The store of a column: kept until all columns are, then stored as rows."""
        assert isinstance(lowered, VectorStore)
        shape = TensorType(stmt.buffer.type.dtype, (block.columns * block.lanes,))
        new = Buffer(f"columns{len(self.columns)}", shape, "local")
        kept, done = self.columns.setdefault((stmt, block.bases), (new, set()))
        if not done:
            yield Local(kept)
        done.add(block.column)
        at = constant(block.column * block.lanes)
        yield VectorStore(kept, at, lowered.value, block.lanes)
        if len(done) == block.columns:
            done.clear()
            starts = (constant(i * block.lanes) for i in range(block.columns))
            held = [make(VectorLoad(kept, block.lanes), start) for start in starts]
            held += held[-1:] * (block.lanes - len(held))
            for base, row in zip(block.bases, transposed(tuple(held)), strict=False):
                yield VectorStore(block.buffer, base, row, block.lanes, count=block.count)

    def update(self, stmt: Update, copies: list[Copy], ranges: Ranges) -> Iterator[Stmt]:
        own = self.folds[stmt.fold]
        done: set[Fold] = set()
        for copy in copies:
            parts = own.parts.setdefault(own.key(copy), {})
            fold = parts.get(own.part(copy))
            if fold in done:
                continue
            lowering = Lowering(copy.vector, ranges)
            values = tuple(map(lowering.term, concrete(stmt.values, copy, ranges)))
            single = fused(replace(stmt, values=values))
            lanes = max(v.type.lanes for v in single.values)
            if own.horizontal and copy.vector is not None and copy.vector.role == "reduce":
                lanes = copy.vector.lanes
                if copy.vector.count is not None:
                    active = apply(lt, make(Lanes(lanes)), copy.vector.count)
                    single = guarded(single, active)
            values = (v if v.type.lanes == lanes else make(Splat(lanes), v) for v in single.values)
            if fold is None:
                fold = parts[own.part(copy)] = self.fresh(stmt.fold, lanes)
            done.add(fold)
            yield replace(single, fold=fold, values=tuple(values))
        for copy in copies:
            fold = own.parts[own.key(copy)][own.part(copy)]
            copy.values.update(zip(stmt.fold.running, fold.running, strict=True))

    def fresh(self, fold: Fold, lanes: int) -> Fold:
        labels = tuple(fresh(label, self.labels) for label in fold.labels)
        return replace(fold, labels=labels, lanes=lanes)

    def finish(self, own: _Folds, copies: list[Copy]) -> None:
        """Bind the accumulators, in every copy, to what its unrolled parts and lanes combine to."""
        fold = own.fold
        done: dict[tuple[int, ...], tuple[Node, ...]] = {}
        for key in dict.fromkeys(map(own.key, copies)):
            parts = [part.accs for part in own.parts.get(key, {}).values()]
            if key in own.lane:  # of the one vector
                parts = [tuple(make(Extract(own.lane[key]), acc) for acc in parts[0])]
            done[key] = reduce(fold.monoid.combine, parts or [fold.monoid.identity(fold.dtypes)])
        if own.horizontal:
            done = dict(zip(done, fold_lanes(fold, list(done.values())), strict=True))
        for copy in copies:
            copy.values.update(zip(fold.accs, done[own.key(copy)], strict=True))

    def store(self, stmt: Store, copies: list[Copy], ranges: Ranges) -> Iterator[Stmt]:
        seen: set[tuple[Node, ...]] = set()
        for copy in copies:
            single = stmt.map_terms(lambda t, c=copy: concrete((t,), c, ranges)[0])
            lowered = Lowering(copy.vector, ranges).store(single)
            block = None if stmt.mask else square(stmt.buffer, stmt.index, copy, ranges)
            if block is not None:
                yield from self.column(stmt, block, lowered)
            elif lowered.terms() not in seen:  # the same store from copies that do not matter to it
                seen.add(lowered.terms())
                yield lowered


def concrete(terms: tuple[Node, ...], copy: Copy, ranges: Ranges) -> tuple[Node, ...]:
    """The terms in one copy; where the copies read columns of a square, from its rows."""
    loads = {}
    for term in postorder(*terms) if copy.sides else ():
        load = term.op if isinstance(term.op, nest.Load) and not term.op.masked else None
        block = square(load.buffer, term.args, copy, ranges, True) if load is not None else None
        if block is not None:
            loads[term] = block.load()
    return substitute(terms, {**copy.values, **loads})


def once(block: Block, outside: Collection[str] = ()) -> Block:
    """Declare each local buffer of a block once, and none under a name in use around it."""
    here = dict.fromkeys(s.buffer for s in block if isinstance(s, Local))
    inside = set(outside)
    names = {b: replace(b, name=fresh(b.name, inside)) for b in here}
    names = {b: new for b, new in names.items() if new != b}
    stmts = substituted(block, names)
    first = {s.buffer: s for s in reversed(stmts) if isinstance(s, Local)}
    kept = tuple(s for s in stmts if not isinstance(s, Local) or s is first[s.buffer])
    return map_loops(kept, lambda s: replace(s, body=once(s.body, inside)))


def lower_kernel(kernel: Kernel) -> Kernel:
    """One kernel at the kernel level: flat buffers, vectors, no register or vector loops."""
    body = peel(simplify_block(kernel.body, {}), {})
    lowered = once(tuple(_Expansion(body).block(body, [Copy({})], {})))
    inputs, outputs = tuple(map(flat, kernel.inputs)), tuple(map(flat, kernel.outputs))
    return replace(kernel, inputs=inputs, outputs=outputs, body=lowered)


def lower(program: Program) -> Program:
    """The kernel program of a tile program. Program inputs and outputs keep their shapes."""
    return program.map_kernels("kernel", lower_kernel)
