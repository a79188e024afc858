"""Terms of a nest as expressions of Triton, and the lines that give them names.

Every term is a tensor over the dimensions that it depends on; x[:, None] lines it up with others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from weft.core.node import Node, op_of, postorder
from weft.core.types import DType, i64
from weft.export.triton.folds import Folds
from weft.export.triton.helpers import HELPERS
from weft.export.triton.plan import count_of, planned
from weft.export.triton.slabs import Slab, slabs_of
from weft.export.triton.terms import (
    ADD,
    AND,
    ATOM,
    COMPARE,
    MUL,
    Value,
    is_number,
    literal,
    spelled,
    type_name,
)
from weft.export.triton.text import Names
from weft.export.triton.uses import Lasts, is_wide, uses_in
from weft.scalar import nest
from weft.scalar.intervals import bounds
from weft.scalar.nest import Fold, For, Kernel, free_variables
from weft.scalar.ops import Apply, Constant, value_of
from weft.scalar.placing import place

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


class Values:
    """The lines of a kernel so far, and what its terms are in them."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        folds: Folds,
        problem: Callable[[str], None],
    ) -> None:
        self.kernel, self.name, self.folds, self.problem = kernel, name, folds, problem
        self.plan = planned(kernel.body)
        for told in self.plan.problems:
            problem(told)
        self.body = place(self.plan.body)
        self.lasts = Lasts(self.body)
        self.uses, self.home = uses_in(self.body, self.in_chunks)
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
        self.known: dict[str, tuple[str, int]] = {}  # text -> name, and the loop that it is in
        # Names of what changes: of memory that is written, and then of folds and slabs.
        self.changing = {self.pointers[b.name] for b in kernel.outputs}
        self.unused: set[str] = set()  # names of dimensions, which may turn out not to be needed
        self.checks = False
        self.widest = 1
        self.wide = is_wide(self.plan.body, [*self.buffers.values()])

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

    def number(self, dimension: int, wide: bool = False) -> str:
        text = f"tl.program_id({dimension})"
        return f"tl.cast({text}, tl.int64)" if self.wide or wide else text

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def set(self, stem: str, value: Value) -> Value:
        """Gives a value a name, that of an equal one if there is."""
        words = {*re.findall(r"\w+", value.text)}
        known = self.known.get(value.text) if words.isdisjoint(self.changing) else None
        if known is not None and known[1] in self.blocks:
            return replace(value, text=known[0], binds=ATOM)
        name = self.fresh(stem)
        self.known[value.text] = name, self.blocks[-1]
        self.line(f"{name} = {value.text}")
        return replace(value, text=name, binds=ATOM)

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
        found = spelled(function, args, dtype, self.axes)
        if found is None:
            self.problem(f"{function.name} of {dtype}")
            return Value("None")
        return found

    def is_plain(self, term: Node) -> bool:
        """Whether a division is of a number that is not negative by a positive literal."""
        by = value_of(term.args[1])
        low = bounds(term.args[0], self.ranges)[0] if term.type.dtype is i64 else -1
        return by is not None and by > 0 and (low >= 0 or term.type.dtype.kind == "uint")

    def let(self, stmt: nest.Let) -> None:
        """A name for a term, unless it is short and stands once where it is used."""
        term = stmt.term
        value, load = self.compute(term), isinstance(term.op, nest.Load)
        if load and value.text in self.changing and self.lasts.stays(stmt):
            self.values[term] = value
            return
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

    def in_chunks(self, stmt: For) -> bool:
        count = count_of(stmt)
        return count is None or count > self.plan.sizes[stmt.axis]

    def load(self, term: Node, op: nest.Load) -> Value:
        """How a buffer is read: memory.py."""
        raise NotImplementedError
