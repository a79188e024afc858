"""Loads and stores of a nest in Triton, of buffers and of the slabs of a block."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.core.node import Node
from weft.export.triton.slabs import Slab
from weft.export.triton.terms import ADD, MUL, Value, full, literal, type_name
from weft.export.triton.uses import INT32
from weft.export.triton.values import Values
from weft.scalar import nest
from weft.scalar.nest import free_variables
from weft.scalar.ops import value_of


class Memory(Values):
    """A kernel that reads and writes."""

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
            self.problem(f"a buffer {buffer.name} inside of loops over threads")
        self.scratch[buffer.name] = buffer
        pointer = self.pointers[buffer.name] = self.fresh(f"{buffer.name}_ptr")
        self.changing.add(pointer)
        first, terms = 1, list[str]()
        wide = math.prod(self.grid) * buffer.type.span >= INT32
        for dimension, count in enumerate(self.grid):
            factor = first * buffer.type.span
            terms.append(f"{self.number(dimension, wide)} * {factor}")
            first *= count
        self.line(f"{pointer} += {' + '.join(terms)}")

    def slab_name(self, slab: Slab) -> str:
        if not slab.name:
            slab.name = self.fresh(slab.buffer.name)
            self.changing.add(slab.name)
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
