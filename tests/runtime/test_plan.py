"""The memory plan: buffers alive together never overlap, and the arena stays small."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from weft.runtime.plan import ALIGNMENT, Slot, align, plan, tightest_gap


@st.composite
def slot_lists(draw: st.DrawFn) -> list[Slot]:
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 5000), st.integers(0, 20), st.integers(0, 20)), max_size=30
        )
    )
    return [Slot(f"t{i}", n, min(a, b), max(a, b)) for i, (n, a, b) in enumerate(rows)]


@given(slot_lists())
def test_live_buffers_never_overlap(slots: list[Slot]) -> None:
    made = plan(slots)
    for slot in slots:
        start = made.offsets[slot.name]
        assert start % ALIGNMENT == 0
        assert start + slot.bytes <= made.total
    for a, b in combinations(slots, 2):
        if a.first <= b.last and b.first <= a.last:
            x, y = made.offsets[a.name], made.offsets[b.name]
            assert x + align(a.bytes) <= y or y + align(b.bytes) <= x
    assert made.total <= sum(align(slot.bytes) for slot in slots)


def test_a_chain_needs_two_buffers() -> None:
    chain = [Slot(f"t{i}", 1000, i, i + 1) for i in range(50)]
    assert plan(chain).total == 2 * align(1000)


def test_the_tightest_gap_is_taken() -> None:
    taken = [(1024, 1664), (1920, 2048)]
    assert tightest_gap(taken, 192) == 1664
    assert tightest_gap(taken, 1024) == 0
    assert tightest_gap(taken, 2048) == 2048
