"""Compares kernels up to names of buffers; renames loops and accumulators.

structure(a) == structure(b)          # the same loops over buffers of the same types
renumber(a.body)                      # loops a0, a1, ..., accumulators acc0, ...
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import count
from typing import Any

from weft.core.node import Node, postorder, substitute
from weft.scalar.affine import linear
from weft.scalar.blocks import address, locals_in, nodes
from weft.scalar.nest import Block, Buffer, Fold, For, Kernel, Load, Stmt, Store, Update
from weft.scalar.ops import SAFE, axis, function_of
from weft.scalar.substitution import Substitution


def renumber(
    body: Block, axes: Iterator[int] | None = None, accs: Iterator[int] | None = None
) -> Block:
    """Name the loops a0, a1, ... and the accumulators acc0, acc1, ... in order of appearance.

    All names differ. Blocks of one kernel take their numbers from the same `axes` and `accs`.
    """
    axes, accs = axes or count(), accs or count()

    def fresh(fold: Fold) -> Fold:
        return replace(fold, labels=tuple(f"acc{next(accs)}" for _ in fold.labels))

    def block(stmts: Block, names: dict[Node, Node], folds: dict[Fold, Fold]) -> Block:
        return tuple(statement(s, names, folds) for s in stmts)

    def statement(stmt: Stmt, names: dict[Node, Node], folds: dict[Fold, Fold]) -> Stmt:
        if isinstance(stmt, For):
            mine = {f: fresh(f) for f in stmt.folds}
            for old, new in mine.items():
                both = zip((*old.accs, *old.running), (*new.accs, *new.running), strict=True)
                names.update(both)  # read inside the loop and after it
            variable = axis(f"a{next(axes)}")
            lo, hi = substitute((stmt.lo, stmt.hi), names)
            inner = block(stmt.body, {**names, stmt.axis: variable}, folds | mine)
            named = tuple(mine.values())
            return replace(stmt, axis=variable, lo=lo, hi=hi, body=inner, folds=named)
        stmt = stmt.map_terms(lambda t: substitute((t,), names)[0])
        known = isinstance(stmt, Update) and stmt.fold in folds
        return replace(stmt, fold=folds[stmt.fold]) if known else stmt  # type: ignore[attr-defined]

    return block(body, {}, {})


def structure(kernel: Kernel) -> tuple[Any, ...]:
    """A hashable value, equal for kernels that differ only in the names of buffers."""
    buffers = (*kernel.inputs, *kernel.outputs)
    numbered = enumerate((*buffers, *locals_in(kernel.body)))
    plain = Substitution({b: Buffer(f"b{i}", b.type, b.space) for i, b in numbered})
    number: dict[Node, int] = {}
    rows: list[tuple[Any, ...]] = []

    def key(value: Any) -> Any:
        """Terms as the numbers of their rows, statements as their fields."""
        if isinstance(value, Node):
            for node in postorder(value):
                if node not in number:
                    number[node] = len(rows)
                    rows.append((plain.of(node.op), *(number[a] for a in node.args)))
            return number[value]
        if isinstance(value, tuple):
            return tuple(map(key, value))
        if isinstance(value, Buffer):
            return plain.of(value)
        if isinstance(value, Stmt):
            return (type(value).__name__, *map(key, _parts(value)))
        return value

    body = key(kernel.body)
    return (len(kernel.inputs), tuple(b.type for b in buffers), body, tuple(rows))


def is_same(one: Any, other: Any) -> bool:
    """Whether statements, or blocks of them, are equal to the name."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, Stmt) and type(one) is type(other):
        return one is other or is_same(_parts(one), _parts(other))
    return one == other


def _parts(stmt: Stmt) -> tuple[Any, ...]:
    return tuple(getattr(stmt, f.name) for f in fields(stmt))  # type: ignore[arg-type]


def is_checked(block: Block) -> bool:
    """Whether the block has a checked function, which may meet a fault."""
    return any(getattr(n.op, "function", None) in SAFE for n in nodes(block))


def restates(body: Block) -> bool:
    """Whether a nest packs bf16 pairs that lie in memory so already: it stores what it reads."""
    while len(body) == 1 and isinstance(body[0], For):
        body = body[0].body
    store = body[0] if len(body) == 1 else None
    if not isinstance(store, Store) or function_of(store.value) != "pack_bf16":
        return False
    low, high = store.value.args
    if low.op != high.op or not isinstance(low.op, Load) or low.op.masked:
        return False
    terms, offset = linear(address(store.buffer, store.index, {}))
    twice = {a: 2 * k for a, k in terms.items()}
    found = [linear(address(low.op.buffer, half.args, {})) for half in (low, high)]
    return found == [(twice, 2 * offset), (twice, 2 * offset + 1)]
