"""Reads the statements of loop nests, except for the loops.

scope = NestScope(LOOP, {"x": x, "y": y})
read_statement(Cursor(Line(7, "y[a0] = v0", "<text>")), scope)       # Store(y, (a0,), v0)
"""

from collections import ChainMap
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from weft.core.node import Node
from weft.core.text.cursor import Cursor
from weft.core.text.level import Forms, Level, Ref, make_node
from weft.scalar.monoid import MONOIDS, SUM
from weft.scalar.nest import COMBINING, Buffer, Fold, For, Load, Local, Stmt, Store, Update
from weft.scalar.text.terms import SHOW, SIZES, TermReader


def read_buffer(cursor: Cursor) -> Buffer:
    """Read `x: f32[16,64]`."""
    name = cursor.name("a buffer")
    cursor.expect(":")
    return Buffer(name, cursor.tensor_type())


@dataclass
class Loop:
    """A loop while it is read: what its header says, and its folds up to here."""

    role: str = "free"
    bind: str = ""
    grain: Node | None = None
    usual: int = 0
    listed: list[str] = field(default_factory=list[str])  # labels, in the order of the header
    folds: dict[str, Fold] = field(default_factory=dict[str, Fold])  # by each label


class NestScope(TermReader):
    """The names of one kernel, with a frame of terms and buffers for each open block."""

    def __init__(self, level: Level, buffers: dict[str, Buffer]) -> None:
        self.level, self.forms = level, level.forms.read
        self.terms: ChainMap[str, Node] = ChainMap(dict(SIZES.get({})))
        self.buffers: ChainMap[str, Buffer] = ChainMap(buffers)
        self.loops: list[Loop] = []

    def open(self) -> None:
        self.terms, self.buffers = self.terms.new_child(), self.buffers.new_child()

    def close(self) -> None:
        self.terms, self.buffers = self.terms.parents, self.buffers.parents

    def name(self, cursor: Cursor, name: str) -> Node:
        if name in self.terms:
            return self.terms[name]
        words = [word for word in self.forms if word.isidentifier()]
        return cursor.unknown("undefined name", name, [*self.terms, *words])

    def buffer(self, cursor: Cursor) -> Buffer:
        return cursor.look_up("undefined buffer", cursor.name("a buffer"), self.buffers)

    def running(self, cursor: Cursor, name: str) -> Node:
        fold = self.fold(cursor, name)
        return fold.running[fold.labels.index(name)]

    def fold(self, cursor: Cursor, name: str) -> Fold:
        """The fold of an accumulator, of the innermost loop that has one of that name."""
        known = {n: f for loop in self.loops for n, f in loop.folds.items()}
        return cursor.look_up("undefined accumulator", name, known)

    def indices(self, cursor: Cursor, buffer: Buffer) -> tuple[Node, ...]:
        """Read `[a0, a1]`: one index for each axis of the buffer."""
        found = cursor.listed(lambda: self.index_term(cursor), "[]")
        if len(found) != buffer.type.rank:
            count = f"{len(found)} {'index' if len(found) == 1 else 'indices'}"
            cursor.invalid(f"{count} of {buffer.name}, which is {buffer.type}")
        return found


def read_load(cursor: Cursor, scope: NestScope) -> Node:
    """Read `x[a0, a1]`, `x[a0] if v0 else 0.0` or `x[a0] ahead 64`, after the word load."""
    buffer = scope.buffer(cursor)
    index = scope.indices(cursor, buffer)
    mask = read_mask(cursor, scope)
    ahead = cursor.extent() if not mask and cursor.accept("ahead") else 0
    return make_node(cursor, Load(buffer, bool(mask), ahead), *index, *mask)


def read_mask(cursor: Cursor, scope: NestScope) -> tuple[Node, ...]:
    """Read `if v2 else 0.0`; () where there is no `if`."""
    if not cursor.accept("if"):
        return ()
    condition = scope.condition(cursor)
    cursor.expect("else")
    return condition, scope.expression(cursor)


# --- statements ---------------------------------------------------------------------------------


def _read_local(cursor: Cursor, scope: NestScope) -> Local:
    cursor.name()
    found = read_buffer(cursor)
    space = cursor.name("a memory space") if cursor.accept("in") else "local"
    swizzle = cursor.integer() if cursor.accept("swizzle") else 0
    if swizzle not in (0, 32, 64, 128):
        cursor.fail(f"a swizzle of {swizzle} bytes")
    buffer = replace(found, space=space, swizzle=swizzle)
    cursor.define(scope.buffers, found.name, buffer)
    return Local(buffer)


def _read_store(cursor: Cursor, scope: NestScope) -> Store:
    buffer = scope.buffer(cursor)
    index = scope.indices(cursor, buffer)
    cursor.expect("=")
    return Store(buffer, index, scope.expression(cursor), *read_how(cursor, scope))


def show_how(stmt: Any, ref: Ref) -> str:
    """The end of a store: its mask, a word, and when it is such a store."""
    mask = "" if stmt.mask is None else f" if {ref(stmt.mask)}"
    when = "" if stmt.when is None else f" when {ref(stmt.when)}"
    return mask + (f" {stmt.how}{when}" if stmt.how else "")


def read_how(cursor: Cursor, scope: NestScope) -> tuple[Node | None, str, Node | None]:
    """What show_how shows: perhaps a mask, a word, "" for none, and perhaps a condition."""
    mask = scope.condition(cursor) if cursor.accept("if") else None
    how = next((word for word in ("stream", "async", *COMBINING) if cursor.accept(word)), "")
    return mask, how, scope.condition(cursor) if how and cursor.accept("when") else None


def _read_let(cursor: Cursor, scope: NestScope) -> None:
    name = cursor.name()
    cursor.expect("=")
    term = scope.expression(cursor)
    cursor.end()
    cursor.define(scope.terms, name, term)


def _read_update(cursor: Cursor, scope: NestScope) -> Update:
    labels = [cursor.name("an accumulator")]
    while cursor.accept(","):
        labels.append(cursor.name("an accumulator"))
    cursor.expect("<-")
    finite, partial = (cursor.at_name(1) and cursor.accept(w) for w in ("finite", "partial"))
    word = cursor.name("a monoid")
    if word == "fma" and not partial:
        return _read_product(cursor, scope, labels, finite)
    monoid = MONOIDS.get(FOLDS.get(word, word))
    if monoid is None:
        cursor.unknown("unknown monoid", word, [*FOLDS, *MONOIDS])
    cursor.expect("(")
    for i, label in enumerate(labels):
        found = cursor.name("an accumulator")
        if found != label:
            cursor.fail(f"the update of {label} reads {found} in its place")
        if not cursor.accept(","):
            cursor.expect(";" if i == len(labels) - 1 else ",")
    values = cursor.listed(lambda: scope.expression(cursor), ")")
    fold = Fold(tuple(labels), monoid, (), finite=finite)
    update = _with_fold(cursor, scope, Update(fold, values, partial))
    wanted = len(labels) if partial else 1 + monoid.indexed
    if len(values) != wanted:
        cursor.fail(f"{word} takes {wanted} values here, got {len(values)}")
    return update


def _read_product(cursor: Cursor, scope: NestScope, labels: list[str], finite: bool) -> Update:
    """Read `(x, y, acc0)` after the word fma: the update of a sum by a product."""
    cursor.expect("(")
    values: list[Node] = []
    for _ in range(2):
        values.append(scope.expression(cursor))
        cursor.expect(",")
    found = cursor.name("an accumulator")
    if [found] != labels:
        cursor.fail(f"the update of {', '.join(labels)} reads {found} in its place")
    cursor.expect(")")
    return _with_fold(cursor, scope, Update(Fold((found,), SUM, (), finite=finite), tuple(values)))


# Monoids of one carrier whose combine is one function: acc0 <- add(acc0, v1).
FOLDS = {m.function: m.name for m in MONOIDS.values() if m.function is not None}


def infer_fold(update: Update) -> Fold | None:
    """The fold that an update's labels, monoid and values imply; None when these do not fit.

    acc0 <- add(acc0, v1) is a sum of v1's dtype. Which loop declares it:

    for a2 in 0..64:  # reduce                         by default the outermost of the reduce loops
                                                       around the first update
    for a2 in 0..64:  # reduce into acc0               this loop
    for a2 in 0..64:  # reduce into sum(acc0: f32x8)   this loop, and it says what the fold is
    """
    dtypes = tuple(v.type.dtype for v in update.values)
    lanes = max((v.type.lanes for v in update.values), default=1)
    try:
        carriers = dtypes if update.partial else update.fold.monoid.carriers(dtypes)
    except IndexError:
        return None
    return replace(update.fold, dtypes=carriers, lanes=lanes)


def is_default_place(path: tuple[For, ...], parent: For | None) -> bool:
    """Whether path[0] by default declares the fold of an update inside the loops of `path`."""
    return all(f.role != "free" for f in path) and (parent is None or parent.role == "free")


def _with_fold(cursor: Cursor, scope: NestScope, update: Update) -> Update:
    """The update with its whole fold: a loop around it has that, or this first update implies it.

    Until then its fold has labels and a monoid alone.
    """
    labels, kind = update.fold.labels, str(update.fold)
    for loop in reversed(scope.loops):
        if labels[0] in loop.folds:
            fold = loop.folds[labels[0]]
            if (fold.labels, str(fold)) != (labels, kind):
                told = f"{', '.join(fold.labels)} is a {fold}"
                cursor.fail(f"{told}, not a {kind} of {', '.join(labels)}")
            return replace(update, fold=fold)
    around = takewhile(lambda loop: loop.role != "free", reversed(scope.loops))
    homes = [p for p in scope.loops if labels[0] in p.listed] or [*around]
    if not homes:
        cursor.fail(f"no loop around this update declares {labels[0]}")
    fold = infer_fold(update)
    if fold is None:
        cursor.fail(f"an update of {', '.join(labels)} by no values")
    if len(fold.dtypes) != len(labels):
        cursor.fail(f"{kind} has {len(fold.dtypes)} accumulators, not {len(labels)}")
    homes[-1].folds |= dict.fromkeys(labels, fold)
    return replace(update, fold=fold)


STATEMENTS = {"local": _read_local, "[": _read_store, "<-": _read_update, ",": _read_update}
NEST_FORMS = Forms(show=SHOW, read={"load": read_load}, read_statement=STATEMENTS)


def read_statement(cursor: Cursor, scope: NestScope) -> Stmt | None:
    """Read a statement of one line; None for a let, which only names a term."""
    if not cursor.at_name():
        cursor.expected("a statement")
    mark = cursor.peek() if cursor.at_name(1) else cursor.peek(1)
    if mark == "=":
        return _read_let(cursor, scope)
    readers = scope.level.forms.read_statement
    if mark not in readers:
        words = [word for word in (*readers, "for") if word.isidentifier()]
        cursor.unknown("no statement starts with", f"{cursor.peek()} {cursor.peek(1)}", words)
    stmt: Stmt = readers[mark](cursor, scope)
    cursor.end()
    if not scope.level.has(type(stmt)):
        level = scope.level.word
        cursor.invalid(f"a {type(stmt).__name__} is not a statement of the {level} level")
    return stmt
