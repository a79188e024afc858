"""The price of rows that are read strip after strip of columns, and what it decides."""

from __future__ import annotations

import pytest
import torch

from tests.captures import capture_call
from weft.core.node import make
from weft.core.passes import PassLog
from weft.core.types import TensorType, f32
from weft.levels import lower
from weft.options import Options
from weft.scalar.nest import Block, Buffer, For, Load, Store
from weft.scalar.ops import apply, axis, constant
from weft.targets.cpu import CPUS
from weft.tile.price.traffic import lines_apart, memory_ns

L2 = 1 << 20
TARGET = CPUS["avx512"]


def copy(rows: int, columns: int, width: int, strips_first: bool, again: int = 1) -> Block:
    """A copy of rows, a strip of `width` columns of all rows after the other, or of each row.

    The rows of a strip are read `again` so many times before the next.
    """
    x, y = (Buffer(n, TensorType(f32, (rows, columns))) for n in "xy")
    strip, row, column = axis("strip"), axis("row"), axis("column")
    at = row, apply("add", apply("multiply", strip, constant(width)), column)
    body: Block = (Store(y, at, make(Load(x), *at)),)
    order = [(strip, columns // width), (row, rows)][:: 1 if strips_first else -1]
    order.insert(1, (axis("again"), again))
    for variable, extent in ((column, width), *order[::-1]):
        body = (For(variable, constant(0), constant(extent), body),)
    return body


@pytest.mark.parametrize(
    "rows,columns,width,strips_first,lines",
    [
        (20000, 256, 16, True, 2 * 20000 * 16),  # each piece is a line
        (20000, 300, 25, True, 2 * 20000 * 12 * 160 / 64),  # or parts of two or three
        (20000, 300, 25, False, 0),  # rows in order of memory
        (20000, 512, 256, True, 0),  # long pieces
        (20000, 300, 300, True, 0),  # whole rows
        (4000, 300, 25, True, 0),  # the cache keeps a strip
        (20000, 64, 4, True, 0),  # less than a line: no schedule reads so
    ],
)
def test_lines(rows: int, columns: int, width: int, strips_first: bool, lines: float) -> None:
    body = copy(rows, columns, width, strips_first)
    assert lines_apart(body, L2) == pytest.approx(lines)
    priced = memory_ns(body, TARGET)
    assert (priced == pytest.approx(lines * TARGET.line_ns)) == (lines > 0)


def test_rows_that_are_read_again_stay_in_the_cache() -> None:
    """The gradient of a convolution's weight reads a channel's rows for each other channel."""
    assert lines_apart(copy(1000, 256, 64, True, again=128), L2) == 0
    assert lines_apart(copy(20000, 256, 64, True, again=3), L2) == 2 * 3 * 20000 * 4 * 4


@pytest.mark.parametrize("columns,rows,segments", [(300, 5000, True), (128, 5000, True),
                                                   (128, 500, False)])  # fmt: skip
def test_a_table_of_a_strip_at_a_time_reads_rows_apart(
    columns: int, rows: int, segments: bool
) -> None:
    """5000 rows leave 26 columns to a strip: a table takes 1.8 to 3 times as long there."""

    def f(base: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return base.index_add(0, at, x)

    given = torch.empty(rows, columns), torch.zeros(20000, dtype=torch.int64)
    captured = capture_call(f, (*given, torch.empty(20000, columns)))
    made = lower(captured.graph, Options("cpu:avx512", tune="off"), PassLog()).made["loop"]
    assert any(k.name.endswith("_order") for k in made.kernels) == segments
