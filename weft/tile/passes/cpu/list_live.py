"""list_live: lists what a mask leaves of a sum's entries once, for all columns of a row.

before  for a0 in 0..4096:  # free                after  for a0 in 0..4096:  # free
            for a1 in 0..256:  # free                        for c0 in 0..32:  # free
                for a2 in 0..32:  # reduce                       v0 = load x[a0, c0]
                    v0 = load x[a0, a2]                          flag0[c0] = i32(lt(v0, 768))
                    v1 = lt(v0, 768)                             entry0[c0] = v0
                    in1 = load w[v0, a1] if v1 else 0.0      for e0 in 0..32:  # scan
                    acc0 <- add(acc0, in1)                       v1 = load flag0[e0]
                y[a0, a1] = acc0                                 n <- add(n, v1)
                                                                 live0[running n - v1] = entry0[e0]
                                                             for a1 in 0..256:  # free
                                                                 for n0 in 0..n:  # reduce
                                                                     in1 = load w[live0[n0], a1]
                                                                     acc0 <- add(acc0, in1)
                                                                 y[a0, a1] = acc0

A list of rows that is padded with one past the table's end is such: what the mask rules out adds
the identity of the fold. The list has the terms of an entry that no column changes, in order, so
sums have the same bits. An index is checked once, and not by each strip of columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from weft.core.node import Node, make, postorder, rebuild
from weft.core.types import boolean, i32, i64
from weft.scalar.choices import Choices
from weft.scalar.intervals import bounds
from weft.scalar.monoid import SUM
from weft.scalar.nest import (
    Block,
    Fold,
    For,
    Kernel,
    Load,
    Local,
    Stmt,
    Store,
    Update,
    free_variables,
)
from weft.scalar.ops import apply, cast, constant, function_of
from weft.targets.machine import Machine
from weft.tile.analysis.access import Ranges, contraction, length, ranges_in
from weft.tile.moves.loops import Labels

VECTORS = 8  # of columns, from which on a list is worth its making
ENTRIES = 8, 1 << 12  # that a list may have
LISTS = 2  # of terms of an entry; of more, its number alone is kept


def list_live(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """List the live entries of sums inside loops over columns, where a mask reads memory."""
    labels, ranges = Labels(kernel.body), ranges_in(kernel.body)

    def visit(block: Block, around: frozenset[Node]) -> Iterator[Stmt]:
        for stmt in block:
            if not isinstance(stmt, For) or stmt.bind or contraction(stmt) is not None:
                yield stmt
                continue
            wide = stmt.role == "free" and (length(stmt) or 0) >= VECTORS * target.lanes(4)
            listed = _Listed(stmt, around, labels, ranges) if wide else None
            if listed and listed.parts and choices.decide("live", True):
                yield from listed.block()
            else:
                yield replace(stmt, body=(*visit(stmt.body, around | {stmt.axis}),))

    return replace(kernel, body=(*visit(kernel.body, frozenset()),))


@dataclass(frozen=True)
class _Part:
    """Updates of a loop that one condition rules, with their values where it holds."""

    loop: For
    condition: Node
    updates: list[Update]


class _Listed:
    """A loop over columns whose sums go over lists of live entries."""

    def __init__(self, columns: For, around: frozenset[Node], labels: Labels, ranges: Ranges):
        self.columns, self.around, self.labels, self.ranges = columns, around, labels, ranges
        self.parts = {s: found for s in columns.body if (found := self.parts_of(s))}

    def parts_of(self, stmt: Stmt) -> list[_Part]:
        """Updates of a loop by condition; none if it is another statement, or some have none."""
        plain = isinstance(stmt, For) and stmt.role == "reduce" and not stmt.bind
        if not plain or not ENTRIES[0] <= (stmt.extent or 0) <= ENTRIES[1] or stmt.step != 1:  # type: ignore[attr-defined]
            return []
        assert isinstance(stmt, For)
        found: dict[Node, list[Update]] = {}
        for update in stmt.body:
            masked = self.masked(update, stmt.axis) if isinstance(update, Update) else None
            if masked is None or masked[1].fold not in stmt.folds:
                return []
            found.setdefault(masked[0], []).append(masked[1])
        return [_Part(stmt, *item) for item in found.items()]

    def masked(self, update: Update, entry: Node) -> tuple[Node, Update] | None:
        """The condition without which an update changes nothing, and the update where it holds."""
        if update.partial or len(update.values) != 1 or not update.fold.monoid.function:
            return None
        (value,) = update.values
        (identity,) = update.fold.monoid.identity(update.fold.dtypes)
        for condition in dict.fromkeys(c for n in postorder(value) if (c := _condition(n))):
            axes, reads = free_variables(condition), any(_is_load(n) for n in postorder(condition))
            known = reads and entry in axes and axes <= self.around | {entry}
            if known and _settled(value, condition, frozenset()) is identity:
                live = _settled(value, condition, self.around | {entry})
                return condition, replace(update, values=(live,))
        return None

    def block(self) -> Block:
        """The lists, then the loop over columns."""
        before, body = list[Stmt](), list[Stmt]()
        for stmt in self.columns.body:
            for part in self.parts.get(stmt, ()):
                made, loop = self.listed(part)
                before += made
                body.append(loop)
            body += () if stmt in self.parts else (stmt,)
        return (*before, replace(self.columns, body=tuple(body)))

    def listed(self, part: _Part) -> tuple[Sequence[Stmt], For]:
        """The list of a part's live entries, and its loop over these.

        What it lists is computed in a loop of its own, in lanes.
        """
        loop, entry, most = part.loop, part.loop.axis, part.loop.extent or 0
        count = Fold((f"{part.updates[0].fold.labels[0]}_n",), SUM, (i32,))
        turn, number, at = (self.labels.axis(stem) for stem in "nec")
        flags = self.labels.buffer("flag", i32, (most,))
        flag = make(Load(flags), number)
        place = cast(apply("subtract", count.running[0], flag), i64)
        known: list[Stmt] = [Local(flags)]
        found = [Store(flags, (at,), cast(part.condition, i32))]
        stores, values = list[Store](), dict[Node, Node]()
        for term in self.terms([v for u in part.updates for v in u.values], entry):
            short = term.type.dtype is i64 and _is_short(term, self.ranges)
            dtype = i32 if short else term.type.dtype
            every, kept = (self.labels.buffer(stem, dtype, (most,)) for stem in ("entry", "live"))
            known += [Local(every), Local(kept)]
            found.append(Store(every, (at,), cast(term, dtype)))
            stores.append(Store(kept, (place,), make(Load(every), number)))
            values[term] = cast(make(Load(kept), turn), term.type.dtype)
        lanes = tuple(s.map_terms(lambda t: _replaced(t, {entry: at})) for s in found)
        self.ranges |= dict.fromkeys((number, at, turn), (0, most - 1))
        known.append(replace(loop, axis=at, body=lanes, role="free", folds=()))
        scan = (Update(count, (flag,)), *stores)
        known.append(replace(loop, axis=number, body=scan, role="scan", folds=(count,)))
        updates = tuple(u.map_terms(lambda t: _replaced(t, values)) for u in part.updates)
        end = apply("minimum", cast(count.accs[0], i64), constant(most))
        folds = tuple(u.fold for u in part.updates)
        sums = For(turn, constant(0), end, updates, 1, "reduce", folds=folds, usual=-(-most // 2))
        return known, sums

    def terms(self, values: Sequence[Node], entry: Node) -> list[Node]:
        """The largest terms of an entry that no column changes; its number, if these are many."""
        found: dict[Node, None] = {}
        stack = [*values]
        while stack:
            term = stack.pop()
            axes = free_variables(term)
            if entry not in axes:
                continue
            if axes <= self.around | {entry} and term.type.dtype is not boolean:
                found[term] = None
            else:
                stack.extend(term.args)
        return list(found) if len(found) <= LISTS else [entry]


def _is_load(node: Node) -> bool:
    return isinstance(node.op, Load)


def _condition(node: Node) -> Node | None:
    """What a masked load or a choice depends on."""
    if isinstance(node.op, Load) and node.op.masked:
        return node.args[node.op.buffer.type.rank]
    return node.args[0] if function_of(node) == "where" else None


def _settled(value: Node, condition: Node, fixed: frozenset[Node]) -> Node:
    """The value where that condition does not hold; with axes that are fixed, where it does.

    Terms of these axes alone are listed for all entries, so they stay as they are.
    """

    def one(node: Node) -> Node | None:
        if _condition(node) is not condition or (fixed and free_variables(node) <= fixed):
            return None
        if function_of(node) == "where":
            return node.args[1 if fixed else 2]
        assert isinstance(node.op, Load)
        index = node.args[: node.op.buffer.type.rank]
        return make(Load(node.op.buffer), *index) if fixed else node.args[-1]

    return rebuild((value,), one)[0]


def _replaced(term: Node, values: dict[Node, Node]) -> Node:
    return rebuild((term,), lambda n: None, dict(values))[0]


def _is_short(term: Node, ranges: Ranges) -> bool:
    low, high = bounds(term, ranges)
    return low >= -(1 << 31) and high < 1 << 31
