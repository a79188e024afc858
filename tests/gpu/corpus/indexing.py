"""Gathers and scatters: several at one place, more rows than a block's memory holds, any axis."""

from __future__ import annotations

from tests.agree.inputs import Case, Input, bf16, f32, i32, i64


def added(axis: int, into: Input, values: Input) -> tuple[object, ...]:
    """x.scatter_add along an axis, at random places."""
    at = i64(*values.shape, below=into.shape[axis])
    return (lambda x, at, y: x.scatter_add(axis, at, y)), (into, at, values)


ROWS = {
    "scatter of many rows": added(0, f32(4001, 12), f32(50, 12)),
    "scatter of short rows": added(0, f32(1000, 32), f32(50, 32)),
    "scatter of many columns": added(0, f32(300, 70), f32(40, 70)),
    "scatter of a line": added(0, f32(40_000), f32(300)),
    "scatter along rows": added(1, f32(7, 20_000), f32(7, 90)),
    "scatter along the middle": added(1, f32(3, 2000, 33), f32(3, 9, 33)),
    "scatter of bf16": added(0, bf16(20_000, 6), bf16(31, 6)),
    "scatter of i64": added(0, i64(20_000, 6), i64(31, 6)),
    "scatter to one place": (
        lambda x, at, y: x.index_add(0, at, y),
        (f32(5, 37), i64(400, below=1), f32(400, 37)),
    ),
    "gather of rows": (lambda x, at: x[at] * 2, (f32(50, 70), i64(9, 33, below=50))),
    "gather along columns": (lambda x, at: x.gather(0, at), (f32(50, 70), i64(9, 70, below=50))),
    "gather by i32": (lambda x, at: x.index_select(1, at), (f32(50, 70), i32(200, below=70))),
    "sums of gathered rows": (lambda x, at: x[at].sum(1), (f32(50, 70), i64(9, 33, below=50))),
}
INDEXING = [Case(name, fn, args) for name, (fn, args) in ROWS.items()]
