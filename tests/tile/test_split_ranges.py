"""Windows over rows: the rows whose windows lie inside ask nothing of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tile.test_panels import CONVOLUTION, schedule
from weft.interpret.nests import run
from weft.scalar.blocks import nodes
from weft.scalar.nest import For
from weft.scalar.ops import function_of
from weft.scalar.resize import at_shapes
from weft.scalar.text.terms import show_term
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile.passes.cpu.split_ranges import split_ranges
from weft.tile.verify import verify

POOL = """
program loop pool
input x: f32[10,40]

kernel y(x: f32[10,40]) -> y: f32[10,40]
for a0 in 0..10:  # free
    for a1 in 0..40:  # free
        for a2 in 0..3:  # reduce
            for a3 in 0..3:  # reduce
                v0 = ge(a0 + a2, 1)
                v1 = lt(a0 + a2, 11)
                v2 = and(v0, v1)
                v3 = ge(a1 + a3, 1)
                v4 = and(v2, v3)
                v5 = lt(a1 + a3, 41)
                v6 = and(v4, v5)
                in0 = load x[a0 + a2 - 1, a1 + a3 - 1] if v6 else -inf
                acc0 <- maximum(acc0, in0)
        y[a0, a1] = acc0

output y
"""


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_rows_split_where_windows_leave_the_image(isa: str) -> None:
    body = schedule(POOL, isa)["split_ranges"].split("kernel y")[1]
    first, inside, last = (part.split("\n", 1) for part in body.split("\nfor ")[1:])
    assert [part[0].split(" in ")[1] for part in (first, inside, last)] == [
        f"0..{n}:  # free" for n in (1, 8, 1)
    ]
    assert inside[1].count("ge(") == inside[1].count("lt(") == 1  # of columns alone
    assert first[1].count("ge(") == 2 == last[1].count("lt(")


def test_rows_of_any_number_split_likewise() -> None:
    text = POOL.replace("input x", "size s0: 2..4096 near 10\ninput x", 1).replace(
        "f32[10,", "f32[s0,"
    )
    text = text.replace("0..10:", "0..s0:").replace("lt(a0 + a2, 11)", "le(a0 + a2, s0)")
    program = parse_program(text).map_kernels("tile", lambda k: split_ranges(k, CPUS["avx512"]))
    verify(program)
    rows = [f for f in program.kernels[0].body if isinstance(f, For)]
    assert [show_term(f.hi) for f in rows] == ["1", "s0 - 2", "1"]
    inside = print_program(program).split("for a")[5:9]
    assert sum(part.count("ge(") + part.count("lt(") + part.count("le(") for part in inside) == 2
    for height in (2, 3, 9):
        x = np.random.default_rng(0).standard_normal((height, 40), dtype=np.float32)
        whole, split = (at_shapes(p, [x.shape]) for p in (parse_program(text), program))
        np.testing.assert_array_equal(run(split, [x])[0], run(whole, [x])[0])


def test_products_stay_whole() -> None:
    text = schedule(CONVOLUTION.format(c=2, h=14, w=12, n=20), "avx512")["split_ranges"]
    assert text.count("acc0 <-") == 1


HEADS = """
program loop heads
input x: f32[4,50,64]

kernel y(x: f32[4,50,64]) -> y: f32[50,256]
for a0 in 0..50:  # free
    for a1 in 0..256:  # free
        in0 = load x[a1 // 64, a0, a1 % 64]
        y[a0, a1] = in0

output y
"""


def test_a_divided_axis_becomes_two_loops() -> None:
    split = schedule(HEADS, "avx512")["split_ranges"]
    assert "in0 = load x[a1, a0, a2]\n            y[a0, a1 * 64 + a2] = in0" in split
    x = np.random.default_rng(0).standard_normal((4, 50, 64)).astype(np.float32)
    (found,) = run(parse_program(split), [x])
    assert np.array_equal(found, x.transpose(1, 0, 2).reshape(50, 256))


FROM = {"0..256": "64..256", "f32[50,256]": "f32[50,192]", "y[a0, a1]": "y[a0, a1 - 64]"}


@pytest.mark.parametrize("change", [{"a0": "r0"}, {"a0": "a1r"}, FROM], ids=str)
def test_a_divided_axis_among_any_names_and_from_any_start(change: dict[str, str]) -> None:
    text = HEADS
    for old, new in change.items():
        text = text.replace(old, new)
    x = np.random.default_rng(0).standard_normal((4, 50, 64)).astype(np.float32)
    (found,) = run(parse_program(schedule(text, "avx512")["split_ranges"]), [x])
    want = x.transpose(1, 0, 2).reshape(50, 256)
    assert np.array_equal(found, want[:, 64:] if change is FROM else want)


@pytest.mark.parametrize("unit", [2, 60])  # few remainders; extents that they do not divide
def test_other_axes_stay_whole(unit: int) -> None:
    text = HEADS.replace("f32[4,50,64]", "f32[200,50,64]").replace(
        "64]\n        y", f"{unit}]\n        y"
    )
    text = text.replace("a1 // 64", f"a1 // {unit}").replace("a1 % 64", f"a1 % {unit}")
    assert f"a1 % {unit}" in schedule(text, "avx512")["split_ranges"]


CHUNKS = """
program loop chunks
input x: f32[3,40]

kernel y(x: f32[3,40]) -> y: f32[3]
local most: f32[3]
for a0 in 0..3:  # free
    most[a0] = -inf
for a1 in 0..{turns}:  # scan
    for a2 in 0..3:  # free
        for a3 in 0..{chunk}:  # reduce
            v0 = lt(a1 * {chunk} + a3, 40)
            in0 = load x[a2, a1 * {chunk} + a3] if v0 else -inf
            acc0 <- maximum(acc0, in0)
        in1 = load most[a2]
        v1 = maximum(in1, acc0)
        most[a2] = v1
for a4 in 0..3:  # free
    in2 = load most[a4]
    y[a4] = in2

output y
"""


@pytest.mark.parametrize(("chunk", "ends"), [(16, ["2", "1"]), (8, ["5"]), (64, ["1"])])
def test_chunks_of_a_row_ask_for_its_end_in_the_last_alone(chunk: int, ends: list[str]) -> None:
    program = parse_program(CHUNKS.format(chunk=chunk, turns=-(-40 // chunk)))
    split = program.map_kernels("tile", lambda k: split_ranges(k, CPUS["avx2"]))
    verify(split)
    turns = [f for f in split.kernels[0].body if isinstance(f, For) and f.role == "scan"]
    assert [show_term(f.hi) for f in turns] == ends
    asked = ["lt" in map(function_of, nodes(f.body)) for f in turns]
    assert asked == [40 % chunk > 0 and f is turns[-1] for f in turns]
    x = np.random.default_rng(0).standard_normal((3, 40), dtype=np.float32)
    np.testing.assert_array_equal(run(split, [x])[0], run(program, [x])[0])


def test_a_loop_whose_size_may_be_zero() -> None:
    """Nobody can tell whether s0 - 2 is: the pass may not ask."""
    text = """
program loop inner
size s0: 2..4096 near 10
input x: f32[s0]

kernel y(x: f32[s0]) -> y: f32[s0 - 2]
for a0 in 0..s0 - 2:  # free
    in0 = load x[a0 + 1]
    y[a0] = in0

output y
"""
    program = parse_program(text)
    split = program.map_kernels("tile", lambda k: split_ranges(k, CPUS["avx2"]))
    for n in (2, 5):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(run(at_shapes(split, [x.shape]), [x])[0], x[1:-1])


CAT = """
program loop cat
input x: f32[6,64]
input z: f32[6,70]
input w: f32[134]

kernel y(x: f32[6,64], z: f32[6,70], w: f32[134]) -> y: f32[6]
for a0 in 0..6:  # free
    for a1 in 0..134:  # reduce
        v0 = lt(a1, 64)
        v1 = ge(a1, 64)
        in0 = load x[a0, a1] if v0 else 0.0
        in1 = load z[a0, a1 - 64] if v1 else 0.0
        v2 = where(v0, in0, in1)
        in2 = load w[a1]
        v3 = multiply(v2, in2)
        acc0 <- add(acc0, v3)
    v4 = exp(acc0)
    y[a0] = v4

output y
"""
COLUMNS = (
    CAT.replace("-> y: f32[6]", "-> y: f32[134]")
    .replace(
        CAT[CAT.index("for a0") : CAT.index("        v0 = lt")],
        "for a1 in 0..134:  # free\n    for a0 in 0..6:  # reduce\n",
    )
    .replace("    y[a0] = v4", "    y[a1] = v4")
)


@pytest.mark.parametrize("text", [CAT, COLUMNS, CAT.replace("add(acc0", "maximum(acc0")])
def test_sums_over_a_cat_are_those_of_its_parts(text: str) -> None:
    program = parse_program(text.lstrip())
    split = program.map_kernels("tile", lambda k: split_ranges(k, CPUS["avx512"]))
    verify(split)
    assert "where" not in print_program(split)
    assert print_program(split).count("# reduce") == 2
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(b.type.shape) for b in program.inputs]
    wanted, found = (run(p, given, widen=True)[0] for p in (program, split))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("text", [CAT, COLUMNS])
def test_short_parts_of_sums_stay_masked(text: str) -> None:
    text = text.replace("64", "63").replace("134", "133")
    program = parse_program(text.lstrip())
    split = program.map_kernels("tile", lambda k: split_ranges(k, CPUS["avx512"]))
    assert print_program(split).count("# reduce") == 1
