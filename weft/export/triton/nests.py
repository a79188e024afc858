"""One kernel of Triton from the nest of a block.

Nest(kernel, "softmax_kernel", folds, problem).whole()   # @triton.jit def softmax_kernel...
plan.py has decided which loops are dimensions. These are the loops; updates.py has
the folds, memory.py loads and stores, values.py the terms.
"""

from __future__ import annotations

from dataclasses import replace

from weft.export.triton.plan import count_of
from weft.export.triton.terms import ADD, ATOM, COMPARE, MUL, Value
from weft.export.triton.text import without, wrapped
from weft.export.triton.updates import Updates
from weft.export.triton.values import Guard
from weft.scalar import nest
from weft.scalar.nest import For, Update
from weft.scalar.ops import value_of
from weft.scalar.reach import ends_of, extent_of, ranges_inside


class Nest(Updates):
    """The text of a kernel."""

    def whole(self) -> str:
        self.programs()
        self.block(self.body)
        names = [self.pointers[n] for n in (*self.buffers, *self.scratch)]
        head = f"@triton.jit\ndef {self.name}({', '.join(names)}):"
        comments = [f"    # {line}" for line in "\n".join(self.kernel.origin).splitlines()]
        lines = [wrapped(line) for line in without(self.lines, self.unused)]
        return "\n".join([wrapped(head), *comments, *(lines or ["    pass"]), ""])

    def block(self, body: nest.Block) -> None:
        for stmt in body:
            if isinstance(stmt, nest.Let):
                if self.uses[stmt.term]:
                    self.let(stmt)
            elif isinstance(stmt, For):
                self.loop(stmt)
            elif isinstance(stmt, Update):
                self.update(stmt)
            elif isinstance(stmt, nest.Store):
                self.store(stmt)
            else:
                assert isinstance(stmt, nest.Local)
                self.local(stmt.buffer)

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
        self.unused.add(axis.text)
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
            if self.in_chunks(stmt) or extent_of(replace(stmt, hi=e)) != size * stmt.step
        ]
        values = [self.value(e) for e in ends]
        texts: list[Value] = []
        for end in values:
            axes = self.ordered(axis, end)
            texts.append(Value(f"{axis.over(axes, ADD)} < {end.over(axes, ADD)}", axes, COMPARE))
        condition = self.all_of(texts)
        if condition is not None:
            self.guards.append(Guard(stmt.axis, self.set(f"{stmt.label}_in", condition)))
            self.unused.add(self.guards[-1].value.text)

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
