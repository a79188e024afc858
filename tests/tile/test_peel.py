"""Loops that end at sizes, cut into full blocks and a rest."""

from __future__ import annotations

import numpy as np
import pytest

from weft.emit.c import emit_kernel
from weft.interpret import kernels as machine
from weft.interpret import nests
from weft.kernel.verify import verify
from weft.scalar.blocks import nodes
from weft.scalar.index import function_of
from weft.scalar.nest import For, Program, walk
from weft.scalar.resize import at_shapes
from weft.scalar.text.terms import show_term
from weft.text import parse_program, print_program
from weft.tile.lower import kernels
from weft.tile.moves.peel import parts_of
from weft.tile.verify import verify as verify_tile

ROWS = """
program tile rows
size s0: 2..4096 near 8
size s1: 2..4096 near 32
input x: f32[s0,s1]

kernel y(x: f32[s0,s1]) -> y: f32[s0,s1]
for b0 in 0..s0 by 8:  # free parallel grain 64 // s1 + 1
    for b1 in 0..s1 by 32:  # free serial
        for a0 in b0..min(b0 + 8, s0):  # free register
            for c0 in b1..min(b1 + 32, s1) by 16:  # free register
                for a1 in c0..min(c0 + 16, min(b1 + 32, s1)):  # free vector16
                    in0 = load x[a0, a1]
                    v0 = multiply(in0, 2.0)
                    y[a0, a1] = v0

output y
"""


SUMS = """
program tile sums
size s0: 2..4096 near 8
size s1: 2..4096 near 32
input x: f32[s0,s1]

kernel y(x: f32[s0,s1]) -> y: f32[s0]
for a0 in 0..s0:  # free serial
    for b0 in 0..s1 by 64:  # reduce serial
        for b1 in b0..min(b0 + 64, s1) by 16:  # reduce serial into acc0_b0
            for a1 in b1..min(b1 + 16, min(b0 + 64, s1)):  # reduce vector16
                in0 = load x[a0, a1]
                acc0_b0 <- add(acc0_b0, in0)
        acc0 <- partial add(acc0, acc0_b0)
    y[a0] = acc0

output y
"""


@pytest.mark.parametrize(("width", "parts"), [(1, []), (8, [4, 2, 1]), (6, [3, 1]), (7, [1])])
def test_parts_divide_all_before_them(width: int, parts: list[int]) -> None:
    assert parts_of(width) == parts


def lowered(text: str = ROWS) -> Program:
    program = parse_program(text.lstrip())
    verify_tile(program)
    return kernels.lower(program)


def test_a_rest_of_rows_that_add_nothing_up_is_taken_in_quarters() -> None:
    loops = [s for s in walk(lowered().kernels[0].body) if isinstance(s, For)]
    rows = [f for f in loops if f.label == "b0"]
    columns = [f for f in loops if f.label == "b1"]
    assert [f.step for f in rows] == [8, 4, 1]
    assert [f.bind for f in rows] == ["parallel", "serial", "serial"]
    assert rows[0].grain is not None and all(f.grain is None for f in rows[1:])
    assert [f.step for f in columns] == 3 * [32, 16, 16]  # the last one is masked


def test_a_rest_of_sums_is_taken_in_halves() -> None:
    """By quarters three rows would be loaded for one sum each."""
    rows = "for r0 in 0..s0 by 8:  # free serial\n"
    rows += "    for a0 in r0..min(r0 + 8, s0):  # free register\n"
    head, body = SUMS.split("for a0 in 0..s0:  # free serial\n")
    inner = body.replace("\n    ", "\n        ").replace("    for", "        for", 1)
    loops = [s for s in walk(lowered(f"{head}{rows}{inner}").kernels[0].body) if isinstance(s, For)]
    assert [f.step for f in loops if f.label == "r0"] == [8, 4, 2, 1]


@pytest.mark.parametrize("shape", [(2, 2), (7, 15), (8, 32), (9, 33), (15, 48), (23, 63), (31, 47)])
def test_every_element_is_computed_once_at_any_size(shape: tuple[int, int]) -> None:
    verify(program := lowered())
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    (y,) = nests.run(at_shapes(parse_program(ROWS.lstrip()), [shape]), [x])
    np.testing.assert_array_equal(y, 2 * x)

    (y,) = machine.run(at_shapes(program, [shape]), [x])
    np.testing.assert_array_equal(y.reshape(shape), 2 * x)


@pytest.mark.parametrize("shape", [(2, 2), (7, 15), (8, 31), (5, 32), (3, 17)])
@pytest.mark.parametrize("ends", [("4096", "32"), ("8", "4096"), ("8", "32")], ids=" ".join)
def test_a_size_that_one_block_holds(ends: tuple[str, str], shape: tuple[int, int]) -> None:
    """Where a size is 32 at most, min(b1 + 32, s1) is s1: what is unrolled still is a block's."""
    text = ROWS.replace("4096 near 8", f"{ends[0]} near 8").replace(
        "4096 near 32", f"{ends[1]} near 32"
    )
    verify(program := lowered(text))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    (y,) = machine.run(at_shapes(program, [shape]), [x])
    np.testing.assert_array_equal(y.reshape(shape), 2 * x)


WINDOWS = """
program tile windows
size s0: 2..4096 near {hint}
input x: f32[s0]

kernel y(x: f32[s0]) -> y: f32[s0]
for b0 in 0..s0 by 32:  # free serial
    for c0 in b0..min(b0 + 32, s0) by 16:  # free register
        for a0 in c0..min(c0 + 16, min(b0 + 32, s0)):  # free vector16
            v0 = lt(a0 + 1, s0)
            in0 = load x[a0 + 1] if v0 else 0.0
            y[a0] = in0

output y
"""


@pytest.mark.parametrize(("near", "masked"), [(32, True), (96, True), (1024, False)])
def test_windows_keep_masks_where_blocks_are_few(near: int, masked: bool) -> None:
    """Else the last block goes by single vectors: of 56 columns, blocks of 56, all would."""
    program = lowered(WINDOWS.format(hint=near))
    blocks = print_program(program).split("for b0")[1]
    assert "by 32:" in blocks and (" else " in blocks) == masked
    for size in (2, 31, 32, 33, 64, 100):
        x = np.arange(1, size + 1, dtype=np.float32)
        (y,) = machine.run(at_shapes(program, [(size,)]), [x])
        np.testing.assert_array_equal(y, np.append(x[1:], 0))


MANY = ROWS.replace("4096 near 8", "4096 near 32")
IN_PLACE = """program tile rows
size s0: 2..4096 near 32
input x: f32[s0,5]

kernel y(x: f32[s0,5]) -> y: f32[s0,5]
for b0 in 0..s0 by 8:  # free serial
    local t: f32[8,5]
    for a0 in b0..min(b0 + 8, s0):  # free register
        for a1 in 0..5:  # free serial
            in0 = load x[a0, a1]
            t[a0 - b0, a1] = in0
            in1 = load t[a0 - b0, a1]
            v0 = add(in1, in1)
            t[a0 - b0, a1] = v0
            in2 = load t[a0 - b0, a1]
            y[a0, a1] = in2

output y
"""


SCALED = MANY.replace("kernel y(x: f32[s0,s1])", "kernel y(x: f32[s0,s1], w: f32[])")
SCALED = SCALED.replace("\n\nk", "\ninput w: f32[]\n\nk").replace(
    "multiply(in0, 2.0)", "multiply(in0, in1)"
)
SCALED = SCALED.replace("v0 = m", "in1 = load w[]\n" + 20 * " " + "v0 = m")
CROSSED = MANY.replace("x[a0, a1]", "x[a1, a0]").replace("f32[s0,s1]\n\nk", "f32[s1,s0]\n\nk")
CROSSED = CROSSED.replace("(x: f32[s0,s1])", "(x: f32[s1,s0])")


@pytest.mark.parametrize("shape", [(2, 2), (7, 15), (8, 32), (9, 33), (15, 48), (31, 47)])
@pytest.mark.parametrize("text", [MANY, SCALED], ids=["plain", "with a scalar"])
def test_of_many_rows_the_last_is_computed_again_in_place_of_those_beyond(
    text: str, shape: tuple[int, int]
) -> None:
    verify(program := lowered(text))
    rows = [s for s in walk(program.kernels[0].body) if isinstance(s, For) and s.label == "b0"]
    assert [(f.step, f.bind) for f in rows] == [(8, "parallel")] and rows[0].grain is not None
    x, w = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), np.array(2, np.float32)
    given = [x, w] if text is SCALED else [x]
    (y,) = machine.run(at_shapes(program, [a.shape for a in given]), given)
    np.testing.assert_array_equal(y.reshape(shape), 2 * x)


def test_rows_are_computed_once_beside_a_loop_that_ends_elsewhere() -> None:
    beside = "    for a2 in b0..b0 + s1:  # free serial\n        y[b0, a2 - b0] = 0.0\n"
    program = lowered(MANY.replace("    for b1 in", f"{beside}    for b1 in"))
    loops = [s for s in walk(program.kernels[0].body) if isinstance(s, For)]
    assert [f.step for f in loops if f.label == "b0"] == [8, 4, 1]


def test_rows_are_computed_once_that_read_what_they_write() -> None:
    verify(program := lowered(IN_PLACE))
    loops = [s for s in walk(program.kernels[0].body) if isinstance(s, For)]
    assert [f.step for f in loops if f.label == "b0"] == [8, 4, 1]
    x = np.arange(13 * 5, dtype=np.float32).reshape(13, 5)
    (y,) = machine.run(at_shapes(program, [x.shape]), [x])
    np.testing.assert_array_equal(y.reshape(x.shape), 2 * x)


@pytest.mark.parametrize("rows", [2, 7, 8, 9, 16, 17, 31])
@pytest.mark.parametrize("columns", [2, 5, 15, 16, 17, 33])
def test_squares_are_whole_and_the_last_starts_earlier(rows: int, columns: int) -> None:
    """Where lanes cross rows: the rows of a tensor with fewer than a block go one by one."""
    verify(program := lowered(CROSSED))
    loops = [s for s in walk(program.kernels[0].body) if isinstance(s, For)]
    assert [f.step for f in loops if f.label == "b0"] == [8, 1]
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    (y,) = machine.run(at_shapes(program, [(columns, rows)]), [x.T.copy()])
    np.testing.assert_array_equal(y.reshape(x.shape), 2 * x)


@pytest.mark.parametrize("columns", [2, 15, 16, 63, 64, 65, 80, 127, 128, 200])
def test_blocks_of_a_sum_end_where_none_is_full(columns: int) -> None:
    """Of a row that is shorter, the loops' ends and the mask are those of all rows."""
    verify(program := lowered(SUMS))
    every = [s for s in walk(program.kernels[0].body) if isinstance(s, For)]
    loops = [f for f in every if f.label[0] == "b"]
    assert [(f.label, show_term(f.lo), show_term(f.hi)) for f in loops] == [
        ("b0", "0", "s1"),
        ("b1", "b0", "min(b0 + 64, s1 // 16 * 16)"),
        ("b1", "s1 // 16 * 16", "min(b0 + 64, s1)"),
    ]
    text = emit_kernel(program.kernels[0], "k", ("s0", "s1"))
    assert text.count("if (") == 1 and "%" not in text.split("for (")[1]
    x = np.arange(3 * columns, dtype=np.float32).reshape(3, columns)
    (y,) = machine.run(at_shapes(program, [x.shape]), [x])
    np.testing.assert_allclose(y, x.sum(1))


ONCE = """program tile p
size s0: 2..65536 near 9
input x: f32[s0]

kernel y(x: f32[s0]) -> y: f32[s0]
for b0 in 0..s0 by 16:  # free serial
    for b1 in b0..min(b0 + 16, s0) by 64:  # free serial
        for b2 in b1..min(b1 + 64, min(b0 + 16, s0)) by 16:  # free serial
            for a0 in b2..min(b2 + 16, min(b1 + 64, min(b0 + 16, s0))):  # free vector16
                in0 = load x[a0]
                v0 = multiply(in0, 2.0)
                y[a0] = v0

output y
"""


@pytest.mark.parametrize("size", [2, 15, 16, 17, 32, 47])
def test_a_loop_that_runs_once_at_most_is_no_loop(size: int) -> None:
    verify(program := lowered(ONCE))
    loops = [s for s in walk(program.kernels[0].body) if isinstance(s, For)]
    assert [f.label for f in loops] == ["b0"]
    x = np.arange(size, dtype=np.float32)
    (y,) = machine.run(at_shapes(program, [x.shape]), [x])
    np.testing.assert_array_equal(y, 2 * x)


SINGLE = """program tile p
size s0: 2..65536 near 9
input x: f32[s0]
input w: f32[s0]

kernel y(x: f32[s0], w: f32[s0]) -> y: f32[s0,s0]
for b0 in 0..s0 by 32:  # free serial
    for b1 in b0..min(b0 + 32, s0):  # free serial
        for b2 in 0..s0 by 16:  # free serial
            for a0 in b2..min(b2 + 16, s0):  # free register
                for a1 in b1..min(b1 + 1, min(b0 + 32, s0)):  # free register
                    in0 = load x[a0]
                    in1 = load w[a1]
                    v0 = multiply(in0, in1)
                    y[a0, a1] = v0

output y
"""


def test_a_block_of_one_around_other_blocks_is_full() -> None:
    program = lowered(SINGLE)
    for n in (2, 33):
        x, w = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
        (y,) = machine.run(at_shapes(program, [(n,), (n,)]), [x, w])
        np.testing.assert_array_equal(y.reshape(n, n), np.outer(x, w))


WINDOW = """program tile window
size s0: 2..4096 near 56
input x: f32[s0]

kernel y(x: f32[s0]) -> y: f32[s0]
for b0 in 0..s0 by 32:  # free serial
    for c0 in b0..min(b0 + 32, s0) by 16:  # free register
        for a0 in c0..min(c0 + 16, min(b0 + 32, s0)):  # free vector16
            for a1 in 0..5:  # reduce serial
                v0 = ge(a0 + a1, 2)
                v1 = lt(a0 + a1, s0 + 2)
                v2 = and(v0, v1)
                in0 = load x[a0 + a1 - 2] if v2 else 0.0
                acc0 <- add(acc0, in0)
            y[a0] = acc0

output y
"""


def test_full_blocks_of_windows_end_where_these_reach_over_the_side() -> None:
    verify(program := lowered(WINDOW))
    blocks = [s for s in walk(program.kernels[0].body) if isinstance(s, For) and s.label == "b0"]
    assert [f.step for f in blocks] == [32, 16]
    last = [any(function_of(t) == "lt" for t in nodes(f.body)) for f in blocks]
    assert last == [False, True]
    for n in (2, 3, 15, 16, 17, 18, 19, 31, 32, 33, 34, 35, 50, 64, 65, 66, 98):
        x = np.arange(n, dtype=np.float32) ** 2
        (y,) = machine.run(at_shapes(program, [(n,)]), [x])
        np.testing.assert_array_equal(y, np.convolve(x, np.ones(5), "full")[2 : n + 2])


def test_windows_compare_lane_numbers_as_i32() -> None:
    """As i64 their masks take longer than the sums: what has bounds needs no wider type."""
    terms = [t for k in lowered(WINDOW).kernels for t in nodes(k.body)]
    masks = [t for t in terms if function_of(t) in ("lt", "le", "ge", "gt") and t.type.lanes > 1]
    assert {a.type.dtype.name for t in masks for a in t.args} == {"i32"}


TRIANGLE = """program tile sums
size s0: 2..4096 near 64
input x: f32[s0,s0]

kernel y(x: f32[s0,s0]) -> y: f32[s0]
for a0 in 0..s0:  # free serial
    for b0 in 0..a0 + 1 by 32:  # reduce serial
        for c0 in b0..min(b0 + 32, a0 + 1) by 16:  # reduce register
            for a1 in c0..min(c0 + 16, min(b0 + 32, a0 + 1)):  # reduce vector16
                in0 = load x[a0, a1]
                acc0 <- add(acc0, in0)
    y[a0] = acc0

output y
"""


@pytest.mark.parametrize("rows", [2, 15, 16, 17, 33, 64, 70])
def test_blocks_that_end_at_another_axis(rows: int) -> None:
    verify(program := lowered(TRIANGLE))
    x = np.arange(rows * rows, dtype=np.float32).reshape(rows, rows)
    (y,) = machine.run(at_shapes(program, [x.shape]), [x])
    np.testing.assert_array_equal(y, np.tril(x).sum(1))
