"""One kernel of Triton from the nest of a block.

Nest(kernel, "softmax_kernel", folds, used, problem).whole()     # @triton.jit def softmax_kernel(...
Every term is a tensor over the dimensions that it depends on; x[:, None] lines it up with others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from weft.core.node import Node, op_of, postorder
from weft.core.types import DType, i64
from weft.export.triton_folds import Folds
from weft.export.triton_helpers import HELPERS
from weft.export.triton_plan import count_of, planned
from weft.export.triton_slabs import Slab, slabs_of
from weft.export.triton_terms import (
    ADD,
    AND,
    ATOM,
    COMPARE,
    MUL,
    OF_INDEX,
    Value,
    full,
    is_number,
    literal,
    spelled,
    type_name,
)
from weft.export.triton_text import Names
from weft.scalar import nest
from weft.scalar.intervals import bounds
from weft.scalar.nest import Fold, For, Kernel, Update, free_variables
from weft.scalar.ops import Apply, Axis, Constant, value_of
from weft.scalar.placing import place
from weft.scalar.reach import ends_of, extent_of, longest, ranges_inside
from weft.scalar.updates import is_product, lifted

INT32 = 2**31
WIDE = 72  # characters of an expression that stands where it is used


@dataclass(frozen=True)
class Guard:
    """Where a loop's iterations are none: a condition on its axis."""

    axis: Node
    value: Value


@dataclass
class Open:
    """A fold in progress: the dimensions and guards that were there before its loop."""

    axes: tuple[Node, ...]
    guards: int
    once: bool  # one update makes all of it


class Nest:
    """The text of a kernel."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        folds: Folds,
        used: set[str],
        problem: Callable[[str], None],
    ) -> None:
        self.kernel, self.name, self.folds, self.used, self.problem = (
            kernel,
            name,
            folds,
            used,
            problem,
        )
        self.plan = planned(kernel.body)
        for told in self.plan.problems:
            problem(told)
        self.body = place(self.plan.body)
        self.uses, self.home = _uses(self.body, self.in_chunks)
        self.buffers = {b.name: b for b in (*kernel.inputs, *kernel.outputs)}
        self.fresh = Names({*HELPERS})
        self.pointers = {n: self.fresh(f"{n}_ptr") for n in self.buffers}
        self.slabs: dict[str, Slab] = slabs_of(self.plan)
        self.scratch: dict[str, nest.Buffer] = {}  # parameters beside the buffers
        self.lines: list[str] = []
        self.depth = 1
        self.axes: list[Node] = []
        self.guards: list[Guard] = []
        self.values: dict[Node, Value] = {}
        self.ranges: dict[Node, tuple[float, float]] = {}
        self.open: dict[Fold, Open] = {}
        self.blocks: list[int] = [0]
        self.checks = False
        self.widest = 1
        self.wide = _is_wide(self.plan.body, [*self.buffers.values()])

    # --- the whole ------------------------------------------------------------------------------

    def whole(self) -> str:
        self.programs()
        self.block(self.body)
        names = [self.pointers[n] for n in (*self.buffers, *self.scratch)]
        head = f"@triton.jit\ndef {self.name}({', '.join(names)}):"
        comments = [f"    # {line}" for line in "\n".join(self.kernel.origin).splitlines()]
        return "\n".join([head, *comments, *(self.lines or ["    pass"]), ""])

    @property
    def grid(self) -> tuple[int, ...]:
        """Programs along each dimension of the launch."""
        counts = [count_of(f) or 0 for f in self.plan.grid]
        if len(counts) <= 3 and all(n < 65536 for n in counts[:-1]):
            return tuple(reversed(counts)) or (1,)
        return (math.prod(counts),)

    @property
    def warps(self) -> int:
        return min(8, max(1, self.widest // 256))

    def programs(self) -> None:
        """Names the number of the program along each loop of the grid."""
        loops, grid = self.plan.grid, self.grid
        self.numbers: dict[Node, Value] = {}
        rest, linear = math.prod(grid), ""
        if len(loops) != len(grid) and loops:
            linear = self.set("program", Value(self.number(0))).text
        for i, loop in enumerate(loops):
            if not linear:
                self.numbers[loop.axis] = Value(self.number(len(loops) - 1 - i))
                continue
            count = count_of(loop) or 1
            rest //= max(count, 1)
            text = linear if rest == 1 else f"{linear} // {rest}"
            text = text if i == 0 else f"{text} % {count}"
            self.numbers[loop.axis] = Value(text, binds=MUL)

    def number(self, dimension: int) -> str:
        text = f"tl.program_id({dimension})"
        return f"tl.cast({text}, tl.int64)" if self.wide else text

    # --- lines ----------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def set(self, stem: str, value: Value) -> Value:
        """Gives a value a name."""
        name = self.fresh(stem)
        self.line(f"{name} = {value.text}")
        return replace(value, text=name, binds=ATOM)

    def block(self, body: nest.Block) -> None:
        for stmt in body:
            if isinstance(stmt, nest.Let):
                if self.uses[stmt.term]:
                    self.let(stmt.term)
            elif isinstance(stmt, For):
                self.loop(stmt)
            elif isinstance(stmt, Update):
                self.update(stmt)
            elif isinstance(stmt, nest.Store):
                self.store(stmt)
            else:
                assert isinstance(stmt, nest.Local)
                self.local(stmt.buffer)

    # --- terms ----------------------------------------------------------------------------------

    def value(self, term: Node) -> Value:
        found = self.values.get(term)
        if found is not None:
            return found
        if isinstance(term.op, Constant):
            made = literal(term.op.value, term.type.dtype)
            return replace(made, small=made.small and not self.wide)
        for sub in postorder(term):
            if sub not in self.values and not isinstance(sub.op, Constant):
                self.values[sub] = self.compute(sub)
        return self.values[term]

    def compute(self, term: Node) -> Value:
        if isinstance(term.op, nest.Load):
            return self.load(term, term.op)
        if not isinstance(term.op, Apply):
            self.problem(f"{term.op}")
            return Value("None")
        function, args = term.op.function, [self.value(a) for a in term.args]
        dtype = term.args[-1].type.dtype
        if function.name in ("checked_index", "checked_divisor"):
            return self.check(function.name, term, args)
        if function.name in ("floordiv", "floormod") and self.is_plain(term):
            sign = "//" if function.name == "floordiv" else "%"
            axes = self.ordered(*args)
            text = f"{args[0].over(axes, MUL)} {sign} {args[1].over(axes, ATOM)}"
            return Value(text, axes, MUL, all(a.small for a in args))
        found = spelled(self.used, function, args, dtype, self.axes)
        if found is None:
            self.problem(f"{function.name} of {dtype}")
            return Value("None")
        return found

    def is_plain(self, term: Node) -> bool:
        """Whether a division is of a number that is not negative by a positive literal."""
        by = value_of(term.args[1])
        low = bounds(term.args[0], self.ranges)[0] if term.type.dtype is i64 else -1
        return by is not None and by > 0 and (low >= 0 or term.type.dtype.kind == "uint")

    def let(self, term: Node) -> None:
        """A name for a term, unless it is short and stands once where it is used."""
        value = self.compute(term)
        load = isinstance(term.op, nest.Load)
        once = self.uses[term] == 1 and self.home.get(term, -1) == self.blocks[-1] and not load
        if once and len(value.text) < WIDE and value.text.count("(") < 6:
            self.values[term] = value
            return
        stem = op_of(term, nest.Load).buffer.name if load else "v"
        self.values[term] = self.set(stem, value)

    def ordered(self, *values: Value) -> tuple[Node, ...]:
        """The dimensions of tensors together."""
        return tuple(a for a in self.axes if any(a in v.axes for v in values))

    def shape(self, axes: Sequence[Node]) -> str:
        sizes = [self.plan.sizes[a] for a in axes]
        self.widest = max(self.widest, math.prod(sizes))
        return f"[{', '.join(map(str, sizes))}]"

    def spread(self, value: Value, axes: Sequence[Node], dtype: DType) -> str:
        """The text of a value as a tensor of all of these dimensions."""
        if value.axes == tuple(axes):
            return value.text
        if not value.axes and axes:
            scalar = f"tl.cast({value.text}, {type_name(dtype)})"
            return (
                f"tl.full({self.shape(axes)}, {value.text}, {type_name(dtype)})"
                if is_number(value)
                else f"tl.broadcast_to({scalar}, {self.shape(axes)})"
            )
        return f"tl.broadcast_to({value.over(axes)}, {self.shape(axes)})"

    def all_of(self, values: Sequence[Value]) -> Value | None:
        """The conjunction of conditions."""
        if not values:
            return None
        axes = self.ordered(*values)
        if len(values) == 1:
            return values[0]
        return Value(" & ".join(v.over(axes, AND + 1) for v in values), axes, AND)

    def check(self, name: str, term: Node, args: Sequence[Value]) -> Value:
        self.checks = True
        x = (
            args[0]
            if args[0].binds == ATOM and args[0].text.isidentifier()
            else self.set("index", args[0])
        )
        if name == "checked_index":
            told = "an index is out of range"
            low = Value(f"{x.text} >= 0", x.axes, COMPARE)
            high = f"{x.over(self.ordered(*args), ADD)} < {args[1].over(self.ordered(*args), ADD)}"
            both = [low, Value(high, self.ordered(*args), COMPARE)]
        else:
            told, both = "a division by zero", [Value(f"{x.text} != 0", x.axes, COMPARE)]
        condition = self.all_of(both)
        assert condition is not None
        free = free_variables(term)
        mask = self.all_of([g.value for g in self.guards if g.axis in free])
        axes = self.ordered(condition, *([mask] if mask else []))
        given = f", mask={mask.over(axes)}" if mask else ""
        self.line(f'tl.device_assert({condition.over(axes)}, "{told}"{given})')
        return x

    # --- memory ---------------------------------------------------------------------------------

    def offset(self, buffer: nest.Buffer, index: Sequence[Node]) -> Value:
        """Elements from a buffer's first one on."""
        parts: list[Value] = []
        for term, stride in zip(index, buffer.type.layout, strict=True):
            if value_of(term) == 0 or stride == 0:
                continue
            value = self.value(term)
            if stride != 1:
                value = Value(f"{value.inside(MUL)} * {stride}", value.axes, MUL)
            parts.append(value)
        axes = self.ordered(*parts)
        return Value(" + ".join(p.over(axes, ADD) for p in parts), axes, ADD)

    def place_of(self, buffer: nest.Buffer, index: Sequence[Node], axes: Sequence[Node]) -> str:
        """The pointer to elements, as a tensor of these dimensions."""
        offset = self.offset(buffer, index)
        pointer = self.pointers[buffer.name]
        plus = f"{pointer} + {offset.over(axes, ADD)}" if offset.text else pointer
        if offset.axes == tuple(axes):
            self.shape(axes)
            return plus
        return f"tl.broadcast_to({plus}, {self.shape(axes)})"

    def load(self, term: Node, op: nest.Load) -> Value:
        rank = op.buffer.type.rank
        index, rest = term.args[:rank], term.args[rank:]
        slab = self.slabs.get(op.buffer.name)
        if slab is not None and slab.held:
            return self.held(slab, index)
        free = free_variables(*index) if index else frozenset[Node]()
        guards = [g for g in self.guards if g.axis in free]
        conditions = [g.value for g in guards] + [self.value(t) for t in rest[:1]]
        mask, offset = self.all_of(conditions), self.offset(op.buffer, index)
        other = self.value(rest[1]) if rest else literal(0, op.buffer.type.dtype)
        axes = self.ordered(offset, *([mask] if mask else []), other)
        pointer = self.place_of(op.buffer, index, axes)
        if mask is None:
            return Value(f"tl.load({pointer})", axes)
        zero = value_of(rest[1]) == 0 if rest else True
        guarded = frozenset(g.axis for g in guards) if zero else frozenset[Node]()
        text = f"tl.load({pointer}, mask={mask.over(axes)}, other={other.over(axes)})"
        return Value(text, axes, zero=guarded)

    def store(self, stmt: nest.Store) -> None:
        slab = self.slabs.get(stmt.buffer.name)
        if slab is not None and slab.held:
            self.hold(slab, stmt)
            return
        if stmt.when is not None:
            self.problem("a store that combines under a condition")
        value = full(self.value(stmt.value), stmt.buffer.type.dtype)
        masks = [g.value for g in self.guards] + ([self.value(stmt.mask)] if stmt.mask else [])
        mask, offset = self.all_of(masks), self.offset(stmt.buffer, stmt.index)
        axes = self.ordered(offset, value, *([mask] if mask else []))
        axes = tuple(self.axes) if stmt.combines else axes
        pointer = self.place_of(stmt.buffer, stmt.index, axes)
        given = f", mask={mask.over(axes)}" if mask else ""
        text = value.over(axes)
        if slab is not None:
            self.line("tl.debug_barrier()")
        if stmt.combines:
            how = {"atomic_maximum": "atomic_max", "atomic_minimum": "atomic_min"}.get(
                stmt.how, stmt.how
            )
            text = self.spread(value, axes, stmt.buffer.type.dtype)
            self.line(f"tl.{how}({pointer}, {text}{given})")
        else:
            self.line(f"tl.store({pointer}, {text}{given})")
        if slab is not None:
            self.line("tl.debug_barrier()")

    def local(self, buffer: nest.Buffer) -> None:
        """Memory of a block: a tensor, or a part of a buffer of the launch."""
        slab = self.slabs[buffer.name]
        if slab.held:
            if slab.starts:
                sizes = ", ".join(map(str, slab.sizes))
                self.line(
                    f"{self.slab_name(slab)} = tl.zeros([{sizes}], {type_name(buffer.type.dtype)})"
                )
            return
        if self.axes:
            self.problem(f"the memory {buffer.name} of one thread")
        self.scratch[buffer.name] = buffer
        pointer = self.pointers[buffer.name] = self.fresh(f"{buffer.name}_ptr")
        first, terms = 1, list[str]()
        for dimension, count in enumerate(self.grid):
            factor = first * buffer.type.span
            terms.append(f"{self.number(dimension)} * {factor}")
            first *= count
        self.line(f"{pointer} += {' + '.join(terms)}")

    def slab_name(self, slab: Slab) -> str:
        if not slab.name:
            slab.name = self.fresh(slab.buffer.name)
        return slab.name

    def held(self, slab: Slab, index: Sequence[Node]) -> Value:
        """A slab as a tensor over the axes that its dimensions are read by."""
        axes = tuple(index[d] for d in slab.dimensions)
        wanted = tuple(a for a in self.axes if a in axes)
        name = self.slab_name(slab)
        if wanted != axes:
            name = f"tl.permute({name}, {', '.join(str(axes.index(a)) for a in wanted)})"
        return Value(name, wanted)

    def hold(self, slab: Slab, stmt: nest.Store) -> None:
        dtype, name = stmt.buffer.type.dtype, self.slab_name(slab)
        if slab.fills(stmt):
            value = self.value(stmt.value)
            sizes = f"[{', '.join(map(str, slab.sizes))}]"
            self.line(f"{name} = tl.full({sizes}, {value.text}, {type_name(dtype)})")
            return
        axes = tuple(stmt.index[d] for d in slab.dimensions)
        wanted = tuple(a for a in self.axes if a in axes)
        text = self.spread(self.value(stmt.value), wanted, dtype)
        if wanted != axes:
            text = f"tl.permute({text}, {', '.join(str(wanted.index(a)) for a in axes)})"
        rest = self.all_of([g.value for g in self.guards if g.axis not in axes])
        if rest is not None:
            text = f"tl.where({rest.over(axes)}, {text}, {name})"
        self.line(f"{name} = {text}")

    # --- loops ----------------------------------------------------------------------------------

    def loop(self, stmt: For) -> None:
        before = self.ranges
        self.ranges = ranges_inside(stmt, self.ranges)
        if stmt.bind == "grid":
            axis = self.numbers[stmt.axis]
            text = axis.text if stmt.step == 1 else f"{axis.inside(MUL)} * {stmt.step}"
            lo = self.value(stmt.lo)
            text = text if value_of(stmt.lo) == 0 else f"{lo.over((), ADD)} + {text}"
            self.values[stmt.axis] = self.set(stmt.label, Value(text, small=not self.wide))
            self.block(stmt.body)
        else:
            for fold in stmt.folds:
                self.begin(stmt, fold)
            (self.lanes if stmt.bind == "lanes" else self.serial)(stmt)
            for fold in stmt.folds:
                del self.open[fold]
        self.ranges = before

    def begin(self, stmt: For, fold: Fold) -> None:
        """Where a fold starts: a line for each carrier, unless one update makes all of it."""
        once = stmt.bind == "lanes" and not self.in_chunks(stmt) and self.straight(stmt, fold)
        self.open[fold] = Open(tuple(self.axes), len(self.guards), once)
        names = [self.fresh(label) for label in fold.labels]
        for name, start, acc, run in zip(
            names, fold.monoid.identity(fold.dtypes), fold.accs, fold.running, strict=True
        ):
            self.values[acc] = self.values[run] = Value(name, tuple(self.axes))
            if not once:
                text = self.value(start).text
                shape = self.shape(self.axes)
                self.line(f"{name} = tl.full({shape}, {text}, {type_name(acc.type.dtype)})")

    def straight(self, stmt: For, fold: Fold) -> bool:
        """Whether one update, in no loop of its own, makes all of a fold."""
        found = [s for s in stmt.body if isinstance(s, Update) and s.fold == fold]
        inner = [s for s in stmt.body if isinstance(s, For) and _updates(s, fold)]
        if len(inner) == 1 and not found:
            (loop,) = inner
            return loop.bind == "lanes" and not self.in_chunks(loop) and self.straight(loop, fold)
        return len(found) == 1 and not inner

    def in_chunks(self, stmt: For) -> bool:
        count = count_of(stmt)
        return count is None or count > self.plan.sizes[stmt.axis]

    def lanes(self, stmt: For) -> None:
        """A loop as a dimension: its iterations at once, or so many at a time as it has lanes."""
        size, step = self.plan.sizes[stmt.axis], stmt.step
        lo, hi = self.value(stmt.lo), self.value(stmt.hi)
        chunks, depth = self.in_chunks(stmt), self.depth
        base = lo
        if chunks:
            first = self.fresh(f"{stmt.label}_first")
            count = count_of(stmt)
            if lo.axes or hi.axes:
                self.line(f"for {first} in range(0, {(count or 0) * step}, {size * step}):")
                if count is None:
                    self.problem(f"a loop {stmt.label} whose length is data")
                base = Value(f"{lo.inside(ADD)} + {first}", lo.axes, ADD)
            else:
                self.line(f"for {first} in range({lo.text}, {hi.text}, {size * step}):")
                base = Value(first, small=True)
            self.depth += 1
            self.blocks.append(id(stmt))
        at = len(self.axes) - (stmt.axis in self.plan.dots)
        self.axes.insert(at, stmt.axis)
        ramp = f"tl.arange(0, {size})"
        ramp = f"{ramp} * {step}" if step != 1 else ramp
        ramp = f"tl.cast({ramp}, tl.int64)" if self.wide else ramp
        own = Value(ramp, (stmt.axis,), MUL)
        axes = self.ordered(base, own)
        text = ramp if base.text == "0" else f"{base.over(axes, ADD)} + {own.over(axes, ADD)}"
        self.shape(axes)
        axis = self.set(stmt.label, Value(text, axes, small=not self.wide))
        self.values[stmt.axis] = axis
        self.guard(stmt, size, axis)
        self.block(stmt.body)
        self.guards = [g for g in self.guards if g.axis is not stmt.axis]
        self.axes.remove(stmt.axis)
        self.depth = depth
        if chunks:
            self.blocks.pop()

    def guard(self, stmt: For, size: int, axis: Value) -> None:
        """The condition that a lane is an iteration, where not all are."""
        extent = extent_of(stmt)
        if extent is not None and extent % (size * stmt.step) == 0 and extent > 0:
            return
        ends = [
            e
            for e in ends_of(stmt.hi)
            if self.in_chunks(stmt) or longest(stmt.lo, e) != size * stmt.step
        ]
        values = [self.value(e) for e in ends]
        texts: list[Value] = []
        for end in values:
            axes = self.ordered(axis, end)
            texts.append(Value(f"{axis.over(axes, ADD)} < {end.over(axes, ADD)}", axes, COMPARE))
        condition = self.all_of(texts)
        if condition is not None:
            self.guards.append(Guard(stmt.axis, self.set(f"{stmt.label}_in", condition)))

    def serial(self, stmt: For) -> None:
        """A loop in order; where its ends differ by lane, up to the longest one."""
        lo, hi, name = self.value(stmt.lo), self.value(stmt.hi), self.fresh(stmt.label)
        varies, count = bool(lo.axes or hi.axes), count_of(stmt)
        if varies and count is None:
            self.problem(f"a loop {stmt.label} whose length is data")
        ends = f"0, {(count or 0) * stmt.step}" if varies else f"{lo.text}, {hi.text}"
        ends = ends if stmt.step == 1 else f"{ends}, {stmt.step}"
        self.line(f"for {name} in range({ends.removeprefix('0, ') if stmt.step == 1 else ends}):")
        self.depth += 1
        self.blocks.append(id(stmt))
        self.values[stmt.axis] = Value(
            f"tl.cast({name}, tl.int64)" if self.wide else name, small=not self.wide
        )
        if varies:
            axes = lo.axes
            text = name if lo.text == "0" else f"{lo.inside(ADD)} + {name}"
            axis = self.values[stmt.axis] = Value(text, axes, ADD if axes else ATOM, small=True)
            both = self.ordered(axis, hi)
            text = f"{axis.over(both, ADD)} < {hi.over(both, ADD)}"
            self.guards.append(Guard(stmt.axis, self.set(f"{stmt.label}_in", Value(text, both))))
        start = len(self.lines)
        self.block(stmt.body)
        if len(self.lines) == start:
            self.line("pass")
        self.guards = [g for g in self.guards if g.axis is not stmt.axis]
        self.blocks.pop()
        self.depth -= 1

    # --- folds ----------------------------------------------------------------------------------

    def update(self, stmt: Update) -> None:
        fold, known = stmt.fold, self.open[stmt.fold]
        along = [a for a in self.axes if a not in known.axes]
        accs = [self.values[acc] for acc in fold.accs]
        if is_product(stmt):
            self.dot(stmt, along, accs, known)
            return
        guards = self.guards[known.guards :]
        values = [full(self.value(v), v.type.dtype) for v in lifted(stmt)]
        starts = fold.monoid.identity(fold.dtypes)
        parts = [
            self.guarded(v, guards, self.value(s), s.type.dtype)
            for v, s in zip(values, starts, strict=True)
        ]
        if not along:
            order = tuple(self.axes)
            self.assign(accs, self.folds.combined(fold, accs, parts, order))
            return
        whole = self.ordered(*parts, *accs, *(Value("", (a,)) for a in along))
        parts = [
            Value(self.spread(p, whole, d), whole) for p, d in zip(parts, fold.dtypes, strict=True)
        ]
        if len(parts) > 1 or self.scans(stmt):
            parts = [p if p.text.isidentifier() else self.set("part", p) for p in parts]
        if self.scans(stmt):
            self.scan(stmt, parts, along, accs, known)
            return
        self.reduce(fold, parts, along, accs, known)

    def scans(self, stmt: Update) -> bool:
        return any(self.uses[r] for r in stmt.fold.running)

    def reduce(
        self,
        fold: Fold,
        parts: Sequence[Value],
        along: Sequence[Node],
        accs: Sequence[Value],
        known: Open,
    ) -> None:
        """Folds the parts along dimensions, into the fold so far if there is one."""
        order = [*parts[0].axes]
        for axis in reversed(along):
            last = axis is along[0]
            text = self.folds.reduced(fold, [p.text for p in parts], order.index(axis))
            order.remove(axis)
            if last and known.once:
                self.assign(accs, text)
                for acc, run, v in zip(fold.accs, fold.running, accs, strict=True):
                    self.values[acc] = self.values[run] = replace(v, axes=tuple(order))
                return
            if last and len(parts) == 1:
                parts = [Value(text, tuple(order))]
                break
            names = [Value(self.fresh("part"), tuple(order)) for _ in parts]
            self.assign(names, text)
            parts = names
        self.assign(accs, self.folds.combined(fold, accs, parts, tuple(self.axes)))

    def scan(
        self,
        stmt: Update,
        parts: Sequence[Value],
        along: Sequence[Node],
        accs: Sequence[Value],
        known: Open,
    ) -> None:
        """Running folds along the last dimension, after the fold so far if there is one."""
        fold, order = stmt.fold, parts[0].axes
        if len(along) != 1:
            self.problem("a scan along two dimensions")
        text = self.folds.scanned(fold, [p.text for p in parts], order.index(along[0]))
        running = [Value(self.fresh("running"), order) for _ in parts]
        self.assign(running, text)
        if not known.once:
            made = self.folds.combined(fold, accs, running, tuple(self.axes))
            self.assign(running, made)
        if not known.once or any(self.uses[a] for a in fold.accs):
            self.reduce(fold, parts, along, accs, known)
        for run, value in zip(fold.running, running, strict=True):
            self.values[run] = value

    def assign(self, names: Sequence[Value], text: str) -> None:
        self.line(f"{', '.join(n.text for n in names)} = {text}")

    def guarded(self, value: Value, guards: Sequence[Guard], start: Value, dtype: DType) -> Value:
        """The value, where there is an iteration; else the identity."""
        zero = start.text in ("0", "0.0", "False")
        needed = [g.value for g in guards if not (zero and g.axis in value.zero)]
        mask = self.all_of(needed)
        if mask is None:
            return value
        axes = self.ordered(value, mask)
        text = f"tl.where({mask.over(axes)}, {value.over(axes)}, {start.text})"
        return Value(f"tl.cast({text}, {type_name(dtype)})" if is_number(value) else text, axes)

    def dot(self, stmt: Update, along: Sequence[Node], accs: Sequence[Value], known: Open) -> None:
        """A sum of products by tl.dot; what is past the end of the sum is 0 on both sides."""
        guards = [g for g in self.guards if g.axis in along]
        zero, sides = Value("0.0"), list[str]()
        for term in stmt.values:
            side = self.value(term)
            sides.append(self.guarded(side, guards, zero, term.type.dtype).text)
        exact = ', input_precision="ieee"' if stmt.values[0].type.dtype.bits == 32 else ""
        given = "" if known.once else f", {accs[0].text}"
        self.assign(accs, f"tl.dot({', '.join(sides)}{given}{exact})")


def _updates(loop: For, fold: Fold) -> bool:
    return any(isinstance(s, Update) and s.fold == fold for s in nest.walk(loop.body))


def _uses(
    body: nest.Block, in_chunks: Callable[[For], bool]
) -> tuple[Counter[Node], dict[Node, int]]:
    """How often what is needed uses each term; and the loop in whose body it is used."""
    lets, found = dict[Node, int](), list[tuple[nest.Stmt, int]]()

    def gather(block: nest.Block, home: int) -> None:
        for stmt in block:
            if isinstance(stmt, nest.Let):
                lets[stmt.term] = home
                continue
            found.append((stmt, home))
            if isinstance(stmt, For):
                inner = stmt.bind == "serial" or (stmt.bind == "lanes" and in_chunks(stmt))
                gather(stmt.body, id(stmt) if inner else home)

    gather(body, 0)
    uses, homes = Counter[Node](), dict[Node, int]()
    needed = dict.fromkeys(t for stmt, _ in found for t in stmt.terms())
    for stmt, home in found:
        for term in stmt.terms():
            uses[term] += 1
            homes[term] = home
    for term in dict.fromkeys(sub for t in needed for sub in postorder(t)):
        for arg in term.args:
            uses[arg] += 1
            homes[arg] = lets.get(term, -1)
    return uses, homes


def _is_wide(body: nest.Block, buffers: Sequence[nest.Buffer]) -> bool:
    """Whether places or arithmetic of axes may exceed an int32."""
    if any(b.type.span >= INT32 for b in buffers):
        return True
    ranges: dict[Node, tuple[float, float]] = {}
    plain: dict[Node, bool] = {}

    def is_plain(node: Node) -> bool:
        if isinstance(node.op, Axis | Constant):
            return True
        known = isinstance(node.op, Apply) and node.op.function.name in OF_INDEX
        return known and all(plain[a] for a in node.args if a.type.dtype is i64)

    for stmt in nest.walk(body):
        if isinstance(stmt, For):
            ranges = ranges_inside(stmt, ranges)
        for term in stmt.terms():
            for sub in postorder(term):
                if sub.type.dtype is i64 and sub not in plain:
                    plain[sub] = is_plain(sub)
                    low, high = bounds(sub, ranges) if plain[sub] and sub.args else (0, 0)
                    if low < -INT32 or high >= INT32:
                        return True
    return False
