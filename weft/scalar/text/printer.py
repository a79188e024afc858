"""Prints programs of loop nests: the loop, tile and kernel levels.

print(show_nest(LOOP, program))       # program loop main, input x: f32[4], kernel relu(...) -> ...
It prints the placed form, in which each term has a name where it is computed.
"""

from collections.abc import Iterable, Iterator
from itertools import count, groupby

from weft.core.node import Node
from weft.core.text.cursor import show_name, show_string
from weft.core.text.level import Forms, Level
from weft.scalar import nest
from weft.scalar.blocks import locals_in, loops_in
from weft.scalar.placing import place
from weft.scalar.repeat import Repeat, Row
from weft.scalar.text.statements import NEST_FORMS, infer_fold, is_default_place, show_how
from weft.scalar.text.terms import is_inline, show_call, show_term
from weft.scalar.updates import is_product

INDENT = "    "


def show_nest(level: Level, program: nest.Program) -> str:
    lines = [f"program {program.level} {show_name(program.name)}"]
    lines += [f"input {show_buffer(b)}" for b in program.inputs]
    declared = {b.name: b for b in program.inputs}
    for step in program.steps:
        lines += ["", *_show_step(step, level.forms)]
        declared |= {b.name: b for b in step.outputs}
    known = {*declared.values()}
    told = (show_name(b.name) if b in known else show_buffer(b) for b in program.outputs)
    return "\n".join([*lines, "", f"output {', '.join(told)}".rstrip()]) + "\n"


def _show_step(step: nest.Step, forms: Forms) -> list[str]:
    if isinstance(step, nest.Call):
        return _show_call(step)
    if isinstance(step, Repeat):
        return _show_repeat(step, forms)
    if isinstance(step, nest.Kernel):
        return show_kernel(step, forms)
    header, *body = show_kernel(step.kernel, forms)
    grain = [f"rows parallel grain {step.grain}"] if step.grain else []
    return [header, *grain, *(_show_row(row, step.sizes) for row in step.rows), *body]


def _show_row(row: Row, sizes: tuple[Node, ...]) -> str:
    """`row(x: f32[8,8]) -> y: f32[8,8] where n0 = 64`"""
    known = zip(sizes, row.sizes, strict=True)
    told = ", ".join(f"{s.op.label} = {n}" for s, n in known)  # type: ignore[attr-defined]
    return f"row{_show_signature(row.inputs, row.outputs)}{told and f' where {told}'}"


def show_buffer(buffer: nest.Buffer) -> str:
    return f"{show_name(buffer.name)}: {buffer.type}"


def _show_signature(inputs: Iterable[nest.Buffer], outputs: tuple[nest.Buffer, ...]) -> str:
    results = ", ".join(map(show_buffer, outputs))
    results = results if len(outputs) == 1 else f"({results})"
    return f"({', '.join(map(show_buffer, inputs))}) -> {results}"


def _show_repeat(repeat: Repeat, forms: Forms) -> list[str]:
    head = f"repeat {show_name(repeat.name)} {repeat.count}"
    lines = [head + _show_signature(repeat.inputs, repeat.outputs)]
    for s in repeat.slices:
        by = f" by {s.step}" if s.step != 1 else ""
        ends = (("first", s.first), ("last", s.last))
        ends = "".join(f" {word} {show_name(b.name)}" for word, b in ends if b is not None)
        text = f"slice {show_buffer(s.buffer)} = {show_buffer(s.whole)} from {s.at}{by}{ends}"
        lines.append(INDENT + text)
    for kernel in repeat.steps:
        lines += ["", *(INDENT + line for line in show_kernel(kernel, forms))]
    return lines


def _show_call(call: nest.Call) -> list[str]:
    text = f"call {show_name(call.target)}({show_string(call.arguments.shown())}) "
    text += _show_signature(call.inputs, call.outputs)
    return [text + (f" because {show_string(call.reason)}" if call.reason else "")]


def show_kernel(kernel: nest.Kernel, forms: Forms = NEST_FORMS) -> list[str]:
    """The kernel's lines: its signature, then the nest, with the forms of its level."""
    header = f"kernel {show_name(kernel.name)}{_show_signature(kernel.inputs, kernel.outputs)}"
    sizes: dict[Node, int] = {}
    placed = place(kernel.body, lambda t: is_inline(t, sizes))
    return [header, *_Printer(kernel, forms).block(placed, "", None)]


class _Printer:
    """Names terms at their Lets, and forgets the names at the end of the block."""

    def __init__(self, kernel: nest.Kernel, forms: Forms) -> None:
        self.forms = forms
        self.taken = _labels(kernel)
        self.names: dict[Node, str] = {}
        self.free = {stem: map(f"{stem}{{}}".format, count()) for stem in ("in", "v")}

    def ref(self, term: Node) -> str:
        return show_term(term, self.names.get, forms=self.forms.show)

    def block(self, stmts: nest.Block, indent: str, parent: nest.For | None) -> Iterator[str]:
        outer = dict(self.names)
        for stmt in _loads_first(stmts):
            if isinstance(stmt, nest.For):
                yield f"{indent}{self.header(stmt, parent)}"
                yield from self.block(stmt.body, indent + INDENT, stmt)
            elif not isinstance(stmt, nest.Let):
                yield f"{indent}{self.statement(stmt)}"
            else:  # a second Let is a new name: a store in between changed its value
                text = show_call(stmt.term, self.ref, self.forms.show)
                self.names[stmt.term] = self.fresh(stmt.term)
                yield f"{indent}{self.names[stmt.term]} = {text}"
        self.names = outer

    def fresh(self, term: Node) -> str:
        stem = "in" if hasattr(term.op, "buffer") else "v"
        return next(name for name in self.free[stem] if name not in self.taken)

    def header(self, loop: nest.For, parent: nest.For | None) -> str:
        step = f" by {loop.step}" if loop.step != 1 else ""
        bounds = f"{self.ref(loop.lo)}..{self.ref(loop.hi)}"
        how = " ".join(filter(None, [loop.role, loop.bind and show_name(loop.bind)]))
        folds = self.folds(loop, parent)
        into = f" into {', '.join(folds)}" if folds else ""
        grain = "" if loop.grain is None else f" grain {self.ref(loop.grain)}"
        usual = f" usual {loop.usual}" if loop.usual else ""
        return f"for {show_name(loop.label)} in {bounds}{step}:  # {how}{grain}{usual}{into}"

    def folds(self, loop: nest.For, parent: nest.For | None) -> list[str]:
        """The folds after `into`: none where updates imply them, labels, or monoid(label: type)."""
        first = _first_updates(loop)
        known = [f.labels in first and infer_fold(first[f.labels][0]) == f for f in loop.folds]
        placed = [f.labels for f in loop.folds if f.labels in first]
        defaults = [n for n, (_, path) in first.items() if is_default_place(path, parent)]
        mine = {f.labels for f in loop.folds}
        if all(known) and placed == [n for n in defaults if n in mine]:
            return []
        return [_show_fold(f, k) for f, k in zip(loop.folds, known, strict=True)]

    def statement(self, stmt: nest.Stmt) -> str:
        match stmt:
            case nest.Update():
                return self.update(stmt)
            case nest.Store(buffer=buffer, index=index, value=value):
                where = ", ".join(map(self.ref, index))
                how = show_how(stmt, self.ref)
                return f"{show_name(buffer.name)}[{where}] = {self.ref(value)}{how}"
            case nest.Local(buffer=buffer):
                space = "" if buffer.space == "local" else f" in {show_name(buffer.space)}"
                space += f" swizzle {buffer.swizzle}" if buffer.swizzle else ""
                return f"local {show_buffer(buffer)}{space}"
            case _:
                return self.forms.show_statement[type(stmt)](stmt, self.ref)

    def update(self, stmt: nest.Update) -> str:
        labels = ", ".join(map(show_name, stmt.fold.labels))
        finite = "finite " * stmt.fold.finite
        if is_product(stmt):
            return f"{labels} <- {finite}fma({', '.join(map(self.ref, stmt.values))}, {labels})"
        name, function = stmt.fold.monoid.name, stmt.fold.monoid.function
        simple = len(stmt.fold.labels) == len(stmt.values) == 1 and function
        combine, mark = (function, ",") if simple else (name, ";")
        partial = "partial " if stmt.partial else ""
        values = ", ".join(map(self.ref, stmt.values))
        return f"{labels} <- {finite}{partial}{combine}({labels}{mark} {values})"


def _loads_first(stmts: nest.Block) -> Iterator[nest.Stmt]:
    """In each run of Lets, move the loads that read no other Let of the run to the front."""
    for is_let, group in groupby(stmts, lambda s: isinstance(s, nest.Let)):
        run = list(group)
        terms = {t for s in run for t in s.terms()} if is_let else set[Node]()

        def computes(stmt: nest.Stmt, terms: set[Node] = terms) -> bool:
            (term,) = stmt.terms()
            return not hasattr(term.op, "buffer") or not terms.isdisjoint(term.args)

        yield from sorted(run, key=computes) if is_let else run


def _labels(kernel: nest.Kernel) -> set[str]:
    """The names of a kernel's buffers, axes and accumulators."""
    taken = {b.name for b in (*kernel.inputs, *kernel.outputs, *locals_in(kernel.body))}
    for loop in loops_in(kernel.body):
        taken.update((loop.label, *(n for f in loop.folds for n in f.labels)))
    return taken


Updates = dict[tuple[str, ...], tuple[nest.Update, tuple[nest.For, ...]]]


def _first_updates(loop: nest.For) -> Updates:
    """The first update of each fold inside a loop, and the loops from this one down to it."""
    found: Updates = {}

    def visit(block: nest.Block, path: tuple[nest.For, ...]) -> None:
        for stmt in block:
            if isinstance(stmt, nest.For):
                visit(stmt.body, (*path, stmt))
            elif isinstance(stmt, nest.Update):
                found.setdefault(stmt.fold.labels, (stmt, path))

    if loop.folds:
        visit(loop.body, (loop,))
    return found


def _show_fold(fold: nest.Fold, known: bool) -> str:
    if known:
        return ", ".join(map(show_name, fold.labels))
    types = (f"{show_name(a.op.label)}: {a.type}" for a in fold.accs)  # type: ignore[attr-defined]
    return f"{fold}({', '.join(types)})"


def describe(stmt: nest.Stmt) -> str:
    """A statement as an error message names it."""
    match stmt:
        case nest.For():
            return f"for {stmt.label}"
        case nest.Update():
            return f"update of {', '.join(stmt.fold.labels)}"
        case nest.Store():
            return f"store to {stmt.buffer.name}[{', '.join(map(show_term, stmt.index))}]"
        case _:
            buffer = getattr(stmt, "buffer", None)
            return type(stmt).__name__ + (f" to {buffer.name}" if buffer is not None else "")
