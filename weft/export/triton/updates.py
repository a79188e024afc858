"""Folds of a nest in Triton: tl.sum and the like along dimensions, tl.dot, scans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.core.node import Node
from weft.core.types import DType
from weft.export.triton.memory import Memory
from weft.export.triton.terms import Value, full, is_number, type_name
from weft.export.triton.values import Guard, Open
from weft.scalar import nest
from weft.scalar.nest import Fold, For, Update
from weft.scalar.updates import is_product, lifted


class Updates(Memory):
    """A kernel that folds."""

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
                self.changing.add(name)
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
