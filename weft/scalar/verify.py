"""The verifier of the loop, tile and kernel levels; a `Level` has what differs between them.

A program
  1. is of the level it is verified at;
  2. has one element type and one layout for each buffer name;
  3. has steps that read inputs or what an earlier step wrote, and writes all its outputs; what is
     repeated holds to scalar/repeat.py, and what collectives move to scalar/collectives.py.
A kernel
  4. uses only the statements, terms, roles and binds of its level, and runs iterations
     concurrently only in free loops, and in reductions that threads share;
  5. reads its inputs and local buffers, and stores to its outputs and local buffers;
  6. stores to each output, and to all its elements where these can be counted, or combines values
     with what an earlier step of the program wrote there;
  7. uses a local buffer after it is declared, in the same block or inside it; nothing else has
     its name there.
Rows of a kernel
 14. have an operand of the dtype and the span of each of the kernel's buffers, a number in range
     for each size, and no output that is an operand of another row; they combine no values.
A statement
  8. uses an axis only inside its loop, where no other loop binds it: passes substitute by axis;
  9. reads an accumulator after its loop, a running value in its scan, after the update;
 10. indexes with i64, stores a value of the buffer's dtype under a bool mask;
 11. stays inside buffers, where bounds are known and no condition guards the access.
A fold
 12. is declared once, by a reduce or scan loop, with the carriers of its monoid;
 13. is updated inside its loop, without a free loop between, by values of its dtypes and lanes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.core.errors import VerifyError
from weft.core.node import Node, Op, bottom_up, declared_in, require
from weft.core.types import TensorType, boolean, i64
from weft.scalar import collectives, nest, repeat
from weft.scalar.affine import linear
from weft.scalar.blocks import combining
from weft.scalar.index import simplify
from weft.scalar.ops import Axis, Constant, apply, constant
from weft.scalar.reach import Loops, extent_of, known_inside
from weft.scalar.repeat import Repeat
from weft.scalar.resize import at_some_sizes, with_sizes
from weft.scalar.symbols import least, negative
from weft.scalar.text.printer import describe
from weft.scalar.text.terms import show_term
from weft.scalar.updates import is_product, lifted

Touch = list[tuple[Node, Node]]  # lowest and highest index along each axis of the buffer
Reach = Callable[..., Touch | None]


def _load(op: nest.Load, args: tuple[Node, ...]) -> Touch | None:
    return None if op.masked else [(i, i) for i in args]


def _store(stmt: nest.Store) -> Touch | None:
    return None if stmt.mask is not None else [(i, i) for i in stmt.index]


@dataclass(frozen=True)
class Level:
    """What a level allows, and the invariants that it adds to those above.

    binds     regular expressions that its loops' binds match
    folders   the folders of weft whose statements and terms it has
    touches   classes of memory ops and statements beyond nest's -> the indices that one accesses,
              None where a condition guards it
    check     raises VerifyError for a statement or term that breaks an invariant of the level
    flat      whether kernels see a buffer as a flat run of elements, whatever its shape elsewhere
    """

    name: str
    binds: tuple[str, ...]
    folders: tuple[str, ...] = ("scalar",)
    touches: Mapping[type, Reach] = field(default_factory=dict[type, Reach])
    check: Callable[[Any, tuple[nest.For, ...]], None] = lambda part, loops: None
    flat: bool = False

    def verify(self, program: nest.Program) -> None:
        """Raise VerifyError, which names the place, unless the program is valid at this level.

        A program for any size is verified at some sizes.
        """
        for at_sizes in at_some_sizes(program):
            _verify(at_sizes, self)


# The errors for a variable that is not in scope.
UNREADABLE: dict[type[Op], str] = {
    Axis: "axis {} is used outside its loop",
    nest.Acc: "{} is read, but no loop before here declares it",
    nest.Running: "running {} is read outside its scan, or before its update",
}


def _verify(program: nest.Program, level: Level) -> None:
    found = program.level
    require(found == level.name, f"{program.name} is a {found} program, not a {level.name} program")
    types: dict[str, TensorType] = {}
    for b in (*program.inputs, *program.outputs):
        known = types.setdefault(b.name, b.type)
        require(known == b.type, f"{b.name} is {known}, {b.type}")
    ready = {b.name for b in program.inputs}
    for step in program.steps:
        _verify_step(step, level, types, ready, alone=len(program.steps) == 1)
    collectives.verify(program.steps)
    for b in program.outputs:
        require(b.name in ready, f"no step of {program.name} writes its output {b.name}")


def _verify_step(
    step: nest.Step, level: Level, types: dict[str, TensorType], ready: set[str], alone: bool
) -> None:
    """One step, after which the buffers that it writes are `ready` as well."""
    kernel = step.kernel if isinstance(step, nest.Rows) else step
    if isinstance(step, nest.Call):
        name = f"call of {step.target}"
    else:
        name = f"{'repeat' if isinstance(step, Repeat) else 'kernel'} {step.name}"
    where = kernel.where if isinstance(kernel, nest.Kernel) else None
    if isinstance(step, nest.Rows):
        _verify_rows(step, level)
    for b in (*step.inputs, *step.outputs):
        known = types.setdefault(b.name, b.type)
        flat = level.flat and (known.dtype, known.span) == (b.type.dtype, b.type.span)
        told = f"{name}: {b.name} is {b.type}, but {known} elsewhere"
        require(flat or known == b.type, told, where)
    for b in step.inputs:
        require(b.name in ready, f"{name} reads {b.name} before any step writes it", where)
    if isinstance(step, Repeat):
        repeat.verify(step)
        for kernel in step.steps:
            _verify_step(kernel, level, types, {b.name for b in kernel.inputs}, alone=False)
    if isinstance(step, nest.Kernel):
        _Verifier(step, level).kernel_body()
        new = {s.buffer.name for s in combining(step.body) if s.buffer in step.outputs} - ready
        told = f"{name} combines values with {', '.join(new)} before any step writes it"
        require(not new or alone, told, where)
    ready.update(b.name for b in step.outputs)


def _verify_rows(step: nest.Rows, level: Level) -> None:
    """Verify a kernel with rows at some sizes, and that each row has what the kernel stands for."""

    def that(condition: bool, sentence: str) -> None:
        require(condition, f"kernel {step.name}: {sentence}", step.kernel.where)

    that(bool(step.rows) and step.grain >= 0, "it has no rows, or a negative grain")
    that(not combining(step.kernel.body), "one with rows combines values with none")
    formal = (*step.kernel.inputs, *step.kernel.outputs)
    names = [b.name for b in step.outputs]
    twice = {b.name for b in step.inputs}.intersection(names) or len({*names}) < len(names)
    that(not twice, "a row reads or writes what another writes")
    for n, row in enumerate(step.rows):
        own = (*row.inputs, *row.outputs)
        told = f"row {n} has {len(row.inputs)} inputs and {len(row.outputs)} outputs"
        same = (len(row.inputs), len(own)) == (len(step.kernel.inputs), len(formal))
        that(same, f"{told}, not {len(step.kernel.inputs)} and {len(step.kernel.outputs)}")
        sizes = zip(step.sizes, row.sizes, strict=False)
        fits = len(step.sizes) == len(row.sizes) and all(_fits(s, k) for s, k in sizes)
        labels = ", ".join(s.op.label for s in step.sizes)  # type: ignore[attr-defined]
        that(fits, f"row {n} has {list(row.sizes)}, which {labels or 'no size'} cannot be")
        known = dict(zip(step.sizes, map(constant, row.sizes), strict=True))
        for stands, b in zip(with_sizes(formal, known), own, strict=True):
            want, has = stands.type, b.type
            alike = (want.dtype, want.span) == (has.dtype, has.span)
            that(alike, f"row {n}: {b.name} is {has}, but {stands.name} {want}")
    for kernel in at_some_sizes(step.kernel):
        _Verifier(kernel, level).kernel_body()


def _fits(symbol: Node, number: int) -> bool:
    s: Any = symbol.op
    return s.low <= number <= s.high and number % s.divisor == 0


class _Verifier:
    """Checks one kernel from the outside in, with the names that are in scope."""

    def __init__(self, kernel: nest.Kernel, level: Level) -> None:
        self.kernel, self.level = kernel, level
        self.touches: dict[type, Reach] = {nest.Load: _load, nest.Store: _store, **level.touches}
        self.loops: Loops = {}
        self.open: list[nest.For] = []
        self.empty = 0  # open loops that never run
        self.here: nest.Stmt | None = None
        self.readable: set[Node] = set()  # axes, accumulators and running values in scope
        self.locals: set[nest.Buffer] = set()
        self.folds: dict[nest.Fold, int] = {}  # fold of an open loop -> its depth
        self.labels: set[str] = set()
        self.checked: dict[Node, None] = {}  # valid terms of this scope or one around it
        self.covered: dict[nest.Buffer, int | None] = {}  # elements stored, None when not known

    def that(self, condition: bool, sentence: str) -> None:
        if not condition:
            place = "" if self.here is None else f", {describe(self.here)}"
            raise VerifyError(f"kernel {self.kernel.name}{place}: {sentence}", self.kernel.where)

    def kernel_body(self) -> None:
        outputs = set(self.kernel.outputs)
        for b in self.kernel.inputs:
            self.that(b not in outputs, f"{b.name} is both an input and an output")
        self.block(self.kernel.body)
        self.here = None
        for b in self.kernel.outputs:
            self.that(b in self.covered or b.type.size == 0, f"output {b.name} is never stored")
            stored = self.covered.get(b)
            enough = stored is None or stored >= b.type.size
            self.that(enough, f"stores {stored} of the {b.type.size} elements of output {b.name}")

    def block(self, body: nest.Block) -> None:
        outer = set(self.locals)
        for stmt in body:
            self.here = stmt
            self.statement(stmt)
        self.locals = outer

    def statement(self, stmt: nest.Stmt) -> None:
        kind, level = type(stmt), self.level
        told = f"{kind.__name__} is not a statement of the {level.name} level"
        self.that(declared_in(kind, level.folders) and kind is not nest.Let, told)
        for term in stmt.terms():
            bottom_up(term, self.checked, self.node)
        self.own(stmt)
        if isinstance(stmt, nest.For):
            self.loop(stmt)
        elif isinstance(stmt, nest.Update):
            self.update(stmt)
        elif isinstance(stmt, nest.Local):
            buffer = stmt.buffer
            self.that(buffer.space != "global", f"{buffer.name} is declared, but not local")
            others = {b.name for b in (*self.kernel.inputs, *self.kernel.outputs, *self.locals)}
            self.that(buffer.name not in others, f"{buffer.name} has the name of another buffer")
            self.locals.add(buffer)
        elif kind in self.touches:
            self.store(stmt)

    def own(self, part: nest.Stmt | Node) -> None:
        """The level's own checks."""
        try:
            self.level.check(part, tuple(self.open))
        except VerifyError as e:
            self.that(False, e.message)

    # Terms

    def node(self, node: Node) -> None:
        op, level = node.op, self.level
        told = f"{op.name} is not a term of the {level.name} level"
        self.that(declared_in(type(op), level.folders), told)
        if isinstance(op, Axis | nest.Acc | nest.Running):
            self.that(node in self.readable, UNREADABLE[type(op)].format(op.label))
        elif type(op) in self.touches:
            buffer: nest.Buffer = op.buffer  # type: ignore[attr-defined]
            self.visible(buffer, self.kernel.inputs, "loaded, but it is no input")
            self.touch("load of", buffer, self.touches[type(op)](op, node.args))
        self.own(node)

    # Memory

    def visible(self, buffer: nest.Buffer, own: tuple[nest.Buffer, ...], told: str) -> None:
        allowed = buffer in own or buffer in self.locals
        self.that(allowed, f"{buffer.name} is {told} and no local buffer in scope")

    def touch(self, kind: str, buffer: nest.Buffer, touch: Touch | None) -> None:
        if touch is None or self.empty:
            return
        known = known_inside(self.loops)
        for axis, ((first, last), extent) in enumerate(zip(touch, buffer.type.shape, strict=True)):
            low, high = least(linear(first), known), -least(negative(linear(last)), known)
            text = f"{kind} {buffer.name}[{', '.join(show_term(i) for i, _ in touch)}]"
            inside = low >= 0 or not _attained(first)
            self.that(inside, f"{text} reaches {low:.0f} along axis {axis}")
            room = f"{buffer.name} has {extent} elements there"
            inside = high < extent or not _attained(last)
            self.that(inside, f"{text} reaches {high:.0f} along axis {axis}, {room}")

    def store(self, stmt: Any) -> None:
        buffer: nest.Buffer = stmt.buffer
        given = buffer in self.kernel.inputs
        self.that(not given, f"{buffer.name} is an input, it cannot be stored to")
        self.visible(buffer, self.kernel.outputs, "stored to, but it is no output")
        dtype, found = buffer.type.dtype, stmt.value.type.dtype
        self.that(found == dtype, f"a value of {found} goes to {buffer.name}, which is {dtype}")
        if isinstance(stmt, nest.Store):
            rank = buffer.type.rank
            given = len(stmt.index)
            self.that(given == rank, f"{given} indices, {buffer.name} has rank {rank}")
            self.that(all(i.type.dtype is i64 for i in stmt.index), "indices must be i64")
            masked = stmt.mask is not None and stmt.mask.type.dtype is not boolean
            self.that(not masked, "the mask must be bool")
        self.touch("store to", buffer, self.touches[type(stmt)](stmt))
        before, more = self.covered.get(buffer, 0), self.elements(stmt)
        self.covered[buffer] = None if before is None or more is None else before + more

    def elements(self, stmt: nest.Stmt) -> int | None:
        """How many elements a store writes, where it writes a box; None otherwise."""
        if not isinstance(stmt, nest.Store) or stmt.mask is not None or stmt.combines:
            return None
        axes = [i for i in stmt.index if not isinstance(i.op, Constant)]
        if len(set(axes)) < len(axes) or not all(isinstance(i.op, Axis) for i in axes):
            return None
        count = 1
        for loop in (self.loops[axis] for axis in axes):
            extent = extent_of(loop)
            if extent is None or not isinstance(loop.lo.op, Constant):
                return None
            count *= -(-extent // loop.step)
        return count

    # Loops and folds

    def loop(self, stmt: nest.For) -> None:
        level, label = self.level, stmt.label
        for what, has, known in ("role", stmt.role, nest.ROLES), ("bind", stmt.bind, level.binds):
            fits = any(re.fullmatch(k, has) for k in known)
            self.that(fits, f"{what} {has!r} is not one of the {level.name} level")
        shared = stmt.bind in ("thread", "lane", "warp") and stmt.role == "reduce"
        free = stmt.bind not in nest.PARALLEL or stmt.role == "free" or shared
        self.that(free, f"a {stmt.bind} loop must be free, not {stmt.role}")
        self.that(stmt.step > 0, f"step {stmt.step} is not positive")
        self.that(stmt.grain is None or stmt.bind == "parallel", "only a parallel loop has a grain")
        self.that(stmt.usual >= 0, f"usually {stmt.usual} from lo to hi is negative")
        self.that(stmt.lo.type.dtype is i64 and stmt.hi.type.dtype is i64, "its bounds must be i64")
        outer = [f for f in self.open if f.axis is stmt.axis]
        self.that(not outer, f"axis {label} is bound again inside its own loop")
        self.that(stmt.role != "free" or not stmt.folds, "a free loop declares a fold")
        for fold in stmt.folds:
            self.declare(fold)
        known, readable = len(self.checked), set(self.readable)
        length = simplify(apply("subtract", stmt.hi, stmt.lo), known_inside(self.loops))
        empty = isinstance(length.op, Constant) and length.op.value <= 0
        self.loops[stmt.axis] = stmt
        self.readable.add(stmt.axis)
        self.folds.update((fold, len(self.open)) for fold in stmt.folds)
        self.open.append(stmt)
        self.empty += empty
        self.block(stmt.body)
        self.empty -= empty
        self.open.pop()
        self.readable = readable
        del self.loops[stmt.axis]
        for term in list(self.checked)[known:]:
            del self.checked[term]
        for fold in stmt.folds:
            del self.folds[fold]
            self.readable.update(fold.accs)

    def declare(self, fold: nest.Fold) -> None:
        name = ", ".join(fold.labels)
        self.that(not self.labels.intersection(fold.labels), f"{name} is declared twice")
        self.labels.update(fold.labels)
        carriers = fold.monoid.carriers(fold.dtypes)
        wanted, found = ", ".join(map(str, carriers)), ", ".join(map(str, fold.dtypes))
        right = carriers == fold.dtypes and len(fold.labels) == len(carriers)
        self.that(right, f"{name} is ({found}), but the carriers of {fold.monoid} are ({wanted})")

    def update(self, stmt: nest.Update) -> None:
        fold, name = stmt.fold, ", ".join(stmt.fold.labels)
        self.that(fold in self.folds, f"{name} is updated outside the loop that declares it")
        between = [f.label for f in self.open[self.folds[fold] + 1 :] if f.role == "free"]
        told = f"free loop {', '.join(between)} updates {name}, declared outside it"
        self.that(not between, told)
        wanted = len(fold.dtypes) if stmt.partial else 1 + fold.monoid.indexed
        given = len(stmt.values)
        right = given == wanted or (self.level.flat and is_product(stmt))
        self.that(right, f"{given} values, {fold.monoid} takes {wanted}")
        for value, dtype in zip(lifted(stmt), fold.dtypes, strict=True):
            found = value.type.dtype
            self.that(found == dtype, f"a value of {found} goes to {name}, which folds {dtype}")
            lanes = value.type.lanes
            fits = lanes == fold.lanes or isinstance(value.op, Constant)
            self.that(fits, f"{lanes} lanes go to {fold.lanes}")
        if self.open[self.folds[fold]].role == "scan":
            self.readable.update(fold.running)


def _attained(index: Node) -> bool:
    """Whether an index is affine in axes, so that it attains the bounds that are found."""
    return all(isinstance(atom.op, Axis) for atom in linear(index)[0])
