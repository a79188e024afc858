"""Parts of a program are replaced wherever they occur, and all else stays the very same object."""

from __future__ import annotations

from tests.nest.build import a0, a1, a2, buffer, c, fold, load, loop, reduce
from weft.scalar.nest import Local, Store, Update, walk
from weft.scalar.ops import apply
from weft.scalar.structure import substituted

x, y, z = buffer("x", 4), buffer("y", 4), buffer("z", 4, space="local")
total, own = fold("acc0"), fold("acc0_own")
SUMMED = reduce(a0, 0, 4, Update(total, (load(x, a0),)), folds=(total,))
STORED = loop(a1, 0, 4, Store(z, (a1,), total.accs[0]))
BLOCK = (Local(z), SUMMED, STORED)


def test_buffers_in_terms_stores_and_declarations() -> None:
    local, summed, stored = substituted(BLOCK, {x: y, z: x})
    assert isinstance(local, Local) and local.buffer == x
    assert [t for s in walk((summed,)) for t in s.terms()][-1] is load(y, a0)
    assert [s.buffer for s in walk((stored,)) if isinstance(s, Store)] == [x]


def test_folds_of_loops_and_updates_but_not_who_reads_them() -> None:
    _, summed, stored = substituted(BLOCK, {total: own})
    assert [s.fold for s in walk((summed,)) if isinstance(s, Update)] == [own]
    assert summed.folds == (own,) and stored is STORED


def test_axes_of_loops_and_terms() -> None:
    _, summed, stored = substituted(BLOCK, {a1: a2})
    assert summed is SUMMED and stored.axis is a2
    assert substituted(apply("add", a1, c(1)), {a1: a2}) is apply("add", a2, c(1))


def test_nothing_to_replace() -> None:
    assert substituted(BLOCK, {}) is BLOCK
    assert all(a is b for a, b in zip(substituted(BLOCK, {y: x}), BLOCK, strict=True))
