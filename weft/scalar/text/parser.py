"""Reads programs of loop nests: the loop, tile and kernel levels.

program = read_nest(LOOP, "main", lines)
A let only names a term: statements hold the terms themselves, the same nodes that were printed.
"""

from collections import deque

from weft.core.node import Node
from weft.core.text.cursor import Cursor, Line
from weft.core.text.graph import indented, no_output
from weft.core.text.level import Level, make_node, read_arguments
from weft.core.types import ScalarType
from weft.scalar.blocks import combining
from weft.scalar.monoid import MONOIDS
from weft.scalar.nest import (
    ROLES,
    Block,
    Buffer,
    Call,
    Fold,
    For,
    Kernel,
    Program,
    Rows,
    Step,
    Stmt,
)
from weft.scalar.ops import Axis, Symbol
from weft.scalar.repeat import Repeat, Row, Slice
from weft.scalar.text.printer import show_nest
from weft.scalar.text.statements import NEST_FORMS, Loop, NestScope, read_buffer, read_statement
from weft.scalar.text.terms import SIZES


def _starts_step(line: Line) -> bool:
    """A kernel, call or output line, which ends the kernel above it."""
    word, _, rest = line.text.partition(" ")
    return word in ("kernel", "call", "repeat", "output") and rest[:1] not in ("=", "<")


def _read_block(lines: deque[Line], indent: int, scope: NestScope) -> Block:
    stmts: list[Stmt] = []
    while lines and lines[0].indent >= indent:
        if indent == 0 and _starts_step(lines[0]):
            break
        cursor = Cursor(lines.popleft())
        if cursor.line.indent > indent:
            cursor.fail("unexpected indentation")
        if cursor.peek() == "for" and cursor.at_name(1):
            stmts.append(_read_for(cursor, lines, indent, scope))
        elif (stmt := read_statement(cursor, scope)) is not None:
            stmts.append(stmt)
    return tuple(stmts)


def _read_for(cursor: Cursor, lines: deque[Line], indent: int, scope: NestScope) -> For:
    cursor.expect("for")
    label = cursor.name("an axis")
    cursor.expect("in")
    lo = scope.index_term(cursor)
    cursor.expect("..")
    hi = scope.index_term(cursor)
    step = cursor.integer() if cursor.accept("by") else 1
    if step < 1:
        cursor.fail(f"a step of {step}")
    cursor.expect(":")
    cursor.end()
    loop = _read_annotation(Cursor(cursor.line, cursor.comment.partition("#")[0]), scope)
    variable = make_node(cursor, Axis(label))
    scope.open()
    if isinstance(getattr(scope.terms.get(label), "op", None), Symbol):
        del scope.terms.maps[-1][label]  # a size that this kernel does not use
    cursor.define(scope.terms, label, variable)
    scope.loops.append(loop)
    inside = lines[0].indent if lines else 0
    body = _read_block(lines, inside, scope) if inside > indent else ()
    scope.loops.pop()
    scope.close()
    folds = _declared(cursor, loop)
    for fold in folds:
        for name, acc in zip(fold.labels, fold.accs, strict=True):
            cursor.define(scope.terms, name, acc)
    return For(variable, lo, hi, body, step, loop.role, loop.bind, folds, loop.grain, loop.usual)


def _read_annotation(cursor: Cursor, scope: NestScope) -> Loop:
    """Read `free parallel grain 64`, `scan usual 3`, or `reduce into acc0, sum(acc1: f32x8)`."""
    loop = Loop()
    if not cursor.peek():
        return loop
    loop.role = cursor.name("the role of the loop")
    if loop.role not in ROLES:
        cursor.fail(f"the role of a loop is {', '.join(ROLES)}, not {loop.role}")
    if cursor.peek() not in ("into", "usual") and cursor.at_name():
        loop.bind = cursor.name()
    if cursor.accept("grain"):
        loop.grain = scope.index_term(cursor)
    if cursor.accept("usual"):
        loop.usual = cursor.integer()
    while cursor.accept("," if loop.listed else "into"):
        if cursor.peek(1 + (cursor.peek() == "finite")) == "(":
            fold = _read_fold(cursor)
            loop.folds |= dict.fromkeys(fold.labels, fold)
            loop.listed += fold.labels
        else:
            loop.listed.append(cursor.name("an accumulator"))
    cursor.end()
    return loop


def _read_fold(cursor: Cursor) -> Fold:
    """Read `sum(acc0: f32x8)`, or `finite sum(acc0: f32x8)`."""
    finite = cursor.at_name(1) and cursor.accept("finite")
    monoid = cursor.one_of("monoid", MONOIDS)

    def item() -> tuple[str, ScalarType]:
        label = cursor.name("an accumulator")
        cursor.expect(":")
        return label, cursor.scalar_type()

    items = cursor.listed(item, "()")
    if not items:
        cursor.fail(f"{monoid} of no accumulators")
    labels, types = zip(*items, strict=True)
    return Fold(labels, monoid, tuple(t.dtype for t in types), types[0].lanes, finite)


def _declared(cursor: Cursor, loop: Loop) -> tuple[Fold, ...]:
    """The loop's folds: those of its header, then the others, in order of their updates."""
    missing = [label for label in loop.listed if label not in loop.folds]
    if missing:
        cursor.fail(f"accumulator {missing[0]} is declared but never updated")
    order = [loop.folds[label] for label in (*loop.listed, *loop.folds)]
    return tuple(dict.fromkeys(order))


# --- programs -----------------------------------------------------------------------------------


def _read_signature(cursor: Cursor) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """Read `(x: f32[4], y: f32[4]) -> z: f32[4]`; several outputs are in parentheses."""
    inputs = cursor.listed(lambda: read_buffer(cursor), "()")
    cursor.expect("->")
    if cursor.accept("("):
        return inputs, cursor.listed(lambda: read_buffer(cursor), ")")
    return inputs, (read_buffer(cursor),)


class _Buffers:
    """The buffers of a program up to here: its inputs, then the outputs of its steps.

    Slices may be read before a repeated kernel writes them.
    """

    def __init__(self, level: Level, slices: dict[str, Buffer] | None = None) -> None:
        self.level, self.slices = level, slices or {}
        self.known: dict[str, Buffer] = {}

    def add(self, cursor: Cursor, buffers: tuple[Buffer, ...]) -> None:
        for buffer in buffers:
            cursor.define(self.known, buffer.name, buffer)

    def check(self, cursor: Cursor, buffers: tuple[Buffer, ...]) -> None:
        """The buffers are declared, with these types; at the kernel level shapes may differ."""
        for buffer in buffers:
            either = self.slices | self.known
            known = cursor.look_up("undefined buffer", buffer.name, either)
            same = known.type.dtype is buffer.type.dtype
            if not same or (self.level.word != "kernel" and str(known.type) != str(buffer.type)):
                told = f"{buffer.name} is declared {buffer.type} here, but {known.type} before"
                cursor.invalid(told)


def _read_kernel(cursor: Cursor, lines: deque[Line], buffers: _Buffers) -> Kernel | Rows:
    name = cursor.name("the kernel's name")
    inputs, outputs = _read_signature(cursor)
    cursor.end()
    rows: list[Row] = []
    sizes: tuple[Node, ...] = ()
    grain = _read_grain(Cursor(lines.popleft())) if _has_grain(lines) else 0
    while lines and lines[0].text.startswith("row("):
        cursor = Cursor(lines.popleft())
        row, own = _read_row(cursor, buffers)
        if rows and own != sizes:
            cursor.invalid("a row has other sizes than the one before")
        rows.append(row)
        sizes = own
    scope = NestScope(buffers.level, {b.name: b for b in (*inputs, *outputs)})
    body = _read_block(lines, 0, scope)
    if rows or grain:
        return Rows(Kernel(name, inputs, outputs, body), tuple(rows), sizes, grain)
    combined = [s.buffer for s in combining(body) if s.buffer.name in buffers.known]
    buffers.check(cursor, (*(b for b in inputs if b not in outputs), *combined))
    buffers.add(cursor, tuple(b for b in outputs if b not in combined))
    return Kernel(name, inputs, outputs, body)


def _has_grain(lines: deque[Line]) -> bool:
    return bool(lines) and lines[0].text.startswith("rows ") and "=" not in lines[0].text


def _read_grain(cursor: Cursor) -> int:
    """Read `rows parallel grain 64`, above the rows."""
    cursor.expect("rows", "parallel", "grain")
    grain = cursor.integer()
    cursor.end()
    return grain


def _read_row(cursor: Cursor, buffers: _Buffers) -> tuple[Row, tuple[Node, ...]]:
    """Read `row(x: f32[8,8]) -> y: f32[8,8] where n0 = 64`; with it the sizes that it has."""
    cursor.expect("row")
    inputs, outputs = _read_signature(cursor)
    buffers.check(cursor, inputs)
    buffers.add(cursor, outputs)
    sizes: dict[Node, int] = {}
    while cursor.accept("," if sizes else "where"):
        size = cursor.look_up("undefined size", cursor.name("a size"), SIZES.get())
        cursor.expect("=")
        sizes[size] = cursor.integer()
    cursor.end()
    return Row(inputs, outputs, tuple(sizes.values())), tuple(sizes)


def _read_call(cursor: Cursor, buffers: _Buffers) -> Call:
    target = cursor.name("the library function")
    cursor.expect("(")
    arguments = read_arguments(cursor)
    cursor.expect(")")
    inputs, outputs = _read_signature(cursor)
    reason = cursor.string() if cursor.accept("because") else ""
    cursor.end()
    buffers.check(cursor, inputs)
    buffers.add(cursor, outputs)
    return Call(target, arguments, inputs, outputs, reason)


def _read_repeat(cursor: Cursor, lines: deque[Line], buffers: _Buffers) -> Repeat:
    """Read `repeat rnn 24(x: f32[24,8]) -> y: f32[24,8]` and the lines under it."""
    name, count = cursor.name("the name of what is repeated"), cursor.integer()
    inputs, outputs = _read_signature(cursor)
    cursor.end()
    buffers.check(cursor, inputs)
    inside, slices, steps = deque(indented(lines)), list[Slice](), list[Kernel]()
    whole = {b.name: b for b in (*inputs, *outputs)}
    while inside and inside[0].text.startswith("slice "):
        slices.append(_read_slice(Cursor(inside.popleft()), whole))
    within = _Buffers(buffers.level, {s.buffer.name: s.buffer for s in slices})
    within.add(cursor, inputs)
    while inside:
        head = Cursor(inside.popleft())
        head.expect("kernel")
        kernel = _read_kernel(head, inside, within)
        if isinstance(kernel, Rows):
            head.fail("a kernel with rows is not repeated")
        steps.append(kernel)
    buffers.add(cursor, outputs)
    return Repeat(name, count, tuple(slices), inputs, outputs, tuple(steps))


def _read_slice(cursor: Cursor, whole: dict[str, Buffer]) -> Slice:
    """Read `slice h: f32[8] = hs: f32[24,8] from -1 by -1 first h0 last h1`."""
    cursor.expect("slice")
    buffer = read_buffer(cursor)
    cursor.expect("=")
    of = read_buffer(cursor)
    cursor.expect("from")
    at, step = cursor.integer(), cursor.integer() if cursor.accept("by") else 1
    ends = (
        cursor.look_up("undefined buffer", cursor.name("a buffer"), whole)
        if cursor.accept(word)
        else None
        for word in ("first", "last")
    )
    found = Slice(buffer, whole.get(of.name, of), at, step, *ends)
    cursor.end()
    return found


def _read_output(cursor: Cursor, buffers: _Buffers) -> Buffer:
    """Read `y`, or `y: f32[4]` where its type is not that of the step that writes it."""
    known = cursor.look_up("undefined buffer", cursor.name("a buffer"), buffers.known)
    if not cursor.accept(":"):
        return known
    found = Buffer(known.name, cursor.tensor_type())
    buffers.check(cursor, (found,))
    return found


def read_nest(level: Level, name: str, given: list[Line]) -> Program:
    lines, buffers = deque(given), _Buffers(level)
    inputs: list[Buffer] = []
    steps: list[Step] = []
    while lines:
        cursor = Cursor(lines.popleft())
        if cursor.line.indent:
            cursor.fail("unexpected indentation")
        if cursor.accept("input"):
            inputs.append(read_buffer(cursor))
            cursor.end()
            buffers.add(cursor, (inputs[-1],))
        elif cursor.accept("kernel"):
            steps.append(_read_kernel(cursor, lines, buffers))
        elif cursor.accept("repeat"):
            steps.append(_read_repeat(cursor, lines, buffers))
        elif cursor.accept("call"):
            steps.append(_read_call(cursor, buffers))
        elif cursor.accept("output"):
            outputs = cursor.listed(lambda c=cursor: _read_output(c, buffers), "")
            if lines:
                Cursor(lines[0]).fail("a line after the output line")
            return Program(level.word, name, tuple(inputs), outputs, tuple(steps))
        else:
            cursor.expected("input, kernel, call, repeat or output")
    return no_output(given)


LOOP = Level("loop", ("scalar", "loop"), show_nest, read_nest, forms=NEST_FORMS)
TILE = Level("tile", ("scalar", "loop", "tile"), show_nest, read_nest, forms=NEST_FORMS)
