"""How panels are packed: lines that windows share once, transposed sides by squares."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.steps import step_of
from tests.tile.test_passes import close, inputs_of
from weft.emit.c import emit_kernel
from weft.interpret import kernels as kernel_interpret
from weft.interpret import nests as interpret
from weft.kernel import verify as kernel_verify
from weft.runtime.compiler import HEADERS, find_compiler
from weft.scalar.choices import Choices
from weft.scalar.nest import For, Local, Program, Update, walk
from weft.targets.cpu import CPUS
from weft.text import parse_program, print_program
from weft.tile import verify as tile_verify
from weft.tile.lower import kernels as lower
from weft.tile.passes.cpu.block_contraction import block_contraction
from weft.tile.passes.programs.pack_constants import pack_constants
from weft.tile.schedule import CPU_SCHEDULE

CONVOLUTION = """
program loop convolution
input x: f32[{c},{h},{w}]
input weight: f32[{n},{c},3,3]

kernel y(x: f32[{c},{h},{w}], weight: f32[{n},{c},3,3]) -> y: f32[{n},{h},{w}]
for a0 in 0..{n}:  # free
    for a1 in 0..{h}:  # free
        for a2 in 0..{w}:  # free
            for a3 in 0..{c}:  # reduce
                for a4 in 0..3:  # reduce
                    for a5 in 0..3:  # reduce
                        v0 = ge(a1 + a4, 1)
                        v1 = lt(a1 + a4, {h} + 1)
                        v2 = and(v0, v1)
                        v3 = ge(a2 + a5, 1)
                        v4 = lt(a2 + a5, {w} + 1)
                        v5 = and(v2, v3)
                        v6 = and(v5, v4)
                        in0 = load x[a3, a1 + a4 - 1, a2 + a5 - 1] if v6 else 0.0
                        in1 = load weight[a0, a3, a4, a5]
                        v7 = multiply(in0, in1)
                        acc0 <- add(acc0, v7)
            y[a0, a1, a2] = acc0

output y
"""


TRANSPOSED = """
program loop matmul
input x: f32[20,40]
input w: f32[70,40]

kernel y(x: f32[20,40], w: f32[70,40]) -> y: f32[20,70]
for a0 in 0..20:  # free
    for a1 in 0..70:  # free
        for a2 in 0..40:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a1, a2]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        y[a0, a1] = acc0

output y
"""

SQUARES = """
program loop transpose
input x: f32[{rows},256]

kernel y(x: f32[{rows},256]) -> y: f32[256,{rows}]
for a0 in 0..256:  # free
    for a1 in 0..{rows}:  # free
        in0 = load x[a1, a0]
        y[a0, a1] = in0

output y
"""


ROWS = """
program loop linear
input x: f32[2,{n},48]
input panels: f32[2,48,{width}]

kernel y(x: f32[2,{n},48], panels: f32[2,48,{width}]) -> y: f32[2,{n},40]
for a0 in 0..2:  # free
    for a1 in 0..{n}:  # free
        for a2 in 0..40:  # free
            for a3 in 0..48:  # reduce
                in0 = load x[a0, a1, a3]
                in1 = load panels[a2 // {width}, a3, a2 % {width}]
                v0 = multiply(in0, in1)
                acc0 <- add(acc0, v0)
            y[a0, a1, a2] = acc0

output y
"""


@pytest.mark.parametrize(("isa", "width", "n"), [("avx512", 32, 16), ("avx2", 16, 8)])
def test_rows_of_two_loops_are_no_panels(isa: str, width: int, n: int) -> None:
    """Collapsed, they are row // n and row % n, as where a panel of n lies."""
    text = ROWS.format(n=n, width=width)
    if isa == "avx2":
        text = text.replace("f32[2,48,16]", "f32[3,48,16]")
    after = schedule(text, isa)["block_contraction"]
    assert re.search(r"for a2 in .* vector", after)


PRODUCT_OF_MANY = """
program loop linear
input x: f32[8,512]
input w: f32[512,32]

kernel y(x: f32[8,512], w: f32[512,32]) -> y: f32[8,32]
for a0 in 0..8:  # free
    for a1 in 0..32:  # free
        for a2 in 0..512:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a2, a1]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        y[a0, a1] = acc0

output y
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 assembly")
def test_what_rows_share_is_loaded_once_for_them(tmp_path: Path) -> None:
    """Tuned for Zen, gcc would make it a memory operand of each product: twice as many loads."""
    source, assembly = compiled(PRODUCT_OF_MANY, tmp_path)
    assert source.count("= kept_f32x8(load_f32x8(panel0") == 2
    assert len(products := products_of(assembly)) >= 8
    assert not any("(" in line for line in products)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 assembly")
def test_sums_over_few_taps_stay_in_registers(tmp_path: Path) -> None:
    """gcc unrolls three iterations whole and loads columns early: six rows would be spilled."""
    text = CONVOLUTION.format(c=2, h=56, w=56, n=64)
    assert "min(b1 + 5, 64)" in schedule(text, "avx2")["block_contraction"]
    _, assembly = compiled(text, tmp_path)
    assert len(products := products_of(assembly)) >= 12
    assert not any("rsp" in line or "rbp" in line for line in products)


@pytest.mark.parametrize(
    ("rows", "columns", "isa", "tile"),
    [
        (64, 64, "avx2", 6),  # 12 sums hide the latency of a multiply-add, and read columns less
        (8, 64, "avx2", 4),  # twice: two rows by themselves would wait for their sums
        (64, 8, "avx2", 8),  # of one vector a row; 2048 bytes apart, more would crowd a cache's set
        (64, 64, "avx512", 8),
        (11, 64, "avx512", 7),  # and 4, for 8 and 3
    ],
)
def test_a_tile_has_the_rows_that_take_the_shortest_time(
    rows: int, columns: int, isa: str, tile: int
) -> None:
    text = PRODUCT_OF_MANY.replace("[8,", f"[{rows},").replace("0..8:", f"0..{rows}:")
    text = text.replace("32]", f"{columns}]").replace("0..32:", f"0..{columns}:")
    assert re.search(rf"in b\d\.\.min\(b\d \+ {tile}, ", schedule(text, isa)["block_contraction"])


PICKED = """
program loop picked
input x: f32[2,16,32]
input w: f32[2,32,90]
input at: i64[{n}]

kernel y(x: f32[2,16,32], w: f32[2,32,90], at: i64[{n}]) -> y: f32[2,16,{n}]
for a0 in 0..2:  # free
    for a1 in 0..16:  # free
        for a2 in 0..{n}:  # free
            in2 = load at[a2]
            v0 = {column}
            for a3 in 0..32:  # reduce
                in0 = load x[a0, a1, a3]
                in1 = load w[a0, a3, v0]
                v1 = multiply(in0, in1)
                acc0 <- add(acc0, v1)
            y[a0, a1, a2] = acc0

output y
"""


@pytest.mark.parametrize(("n", "sums"), [(14, 1), (28, 2), (56, 2)])
def test_columns_beyond_the_last_fill_its_vector(n: int, sums: int) -> None:
    """A mask would take a register of the sums'; they are not stored. The rest has own tiles."""
    after = schedule(PICKED.format(n=n, column="add(a2, 33)"), "avx2")
    tiles = after["block_contraction"]
    assert (f"lt(a2, {n})" in tiles) == (n % 8 > 0)
    assert tiles.count(" <- add(acc0") == sums
    assert ("acc0_rest <- " in tiles) == (sums > 1)
    loads = [s for s in after["kernel"].splitlines() if "= load{8} panel" in s]
    assert loads and not any("count" in s for s in loads)


@pytest.mark.parametrize(("n", "side", "joins"), [(128, 28, False), (512, 7, True), (16, 10, True)])
def test_columns_are_joined_where_that_is_cheaper(n: int, side: int, joins: bool) -> None:
    """Lines from L2 take longer than lanes they fill save; a large left side, read anew, more."""
    text = CONVOLUTION.format(c=n, h=side, w=side, n=n)
    (change,) = (step for label, step in CPU_SCHEDULE if label.endswith("block_contraction"))
    after = print_program(step_of(parse_program(text), change, CPUS["avx2"]))
    assert (f"j0 // {side}" in after) == joins


def test_no_column_beyond_the_last_is_checked() -> None:
    (change,) = (step for label, step in CPU_SCHEDULE if label.endswith("block_contraction"))
    program = parse_program(PICKED.format(n=14, column="checked_index(in2, 90)"))
    text = print_program(step_of(program, change, CPUS["avx2"]))
    assert "panel0" in text and "lt(a2, 14)" not in text


def test_vectors_side_by_side_stay_so_where_the_last_is_partial() -> None:
    """13 columns are two vectors in one loop of sums: alone, few sums would wait for each other."""
    text = PRODUCT_OF_MANY.replace("32]", "13]").replace("0..32:", "0..13:")
    program = parse_program(text)
    for _, step in CPU_SCHEDULE:
        program = step_of(program, step, CPUS["avx2"])
    sums = [
        [s for s in loop.body if isinstance(s, Update)]
        for loop in walk(lower.lower(program).kernels[0].body)
        if isinstance(loop, For) and loop.role == "reduce"
    ]
    assert {len(s) for s in sums if s} == {8}  # four rows of two


def compiled(text: str, folder: Path) -> tuple[str, str]:
    """C and assembly of the kernel, scheduled for AVX2 and tuned for Zen."""
    program = parse_program(text)
    for _, step in CPU_SCHEDULE:
        program = step_of(program, step, CPUS["avx2"])
    source, assembly = folder / "y.c", folder / "y.s"
    source.write_text(emit_kernel(lower.lower(program).kernels[0], "y"))
    compiler = find_compiler()
    flags = [f for f in compiler.flags if not f.startswith("-march")]
    arguments = ["-I", str(HEADERS), *flags, "-march=znver2", "-S", str(source)]
    compiler.run([*arguments, "-o", str(assembly)], source)
    return source.read_text(), assembly.read_text()


def products_of(assembly: str) -> list[str]:
    return [line for line in assembly.splitlines() if "vfmadd" in line]


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize(
    ("h", "w", "n", "panel"),
    [
        (14, 12, 20, {"avx512": "f32[2,3,108]", "avx2": "f32[2,3,108]"}),  # 7 lines, and 2
        (7, 7, 32, {"avx512": "f32[2,3,63]", "avx2": "f32[2,3,10]"}),  # all lines; 8 columns
        (6, 64, 9, {"avx512": "f32[2,3,34]", "avx2": "f32[2,3,18]"}),  # columns of one, and 2
    ],
)
def test_lines_are_packed_once(
    h: int, w: int, n: int, panel: dict[str, str], isa: str, golden: Callable[[str, str], None]
) -> None:
    packed = schedule(CONVOLUTION.format(c=2, h=h, w=w, n=n), isa)["block_contraction"]
    assert f"local panel0: {panel[isa]}" in packed
    if (h, isa) == (14, "avx512"):
        golden("tile/panel_of_lines.txt", packed)


def test_lines_of_any_length_are_packed_once() -> None:
    text = CONVOLUTION.format(c=2, h="s0", w="s1", n=20)
    text = text.replace("input x", "size s0: 2..4096 near 14\nsize s1: 2..4096 near 12\ninput x", 1)
    packed = block_contraction(parse_program(text).kernels[0], CPUS["avx512"], Choices())
    (panel,) = (s.buffer for s in walk(packed.body) if isinstance(s, Local))
    assert str(panel.type) == "f32[2,3,s1 * 9]"


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize(
    ("c", "h", "w", "n", "constant", "turned"),
    [
        (64, 7, 7, 40, True, True),  # 49 columns fill three vectors and a lane
        (2, 7, 7, 40, True, False),  # sums of 18 terms take less time than to transpose them
        (64, 7, 7, 40, False, False),  # weights that change would be packed again for every call
        (64, 2, 8, 40, True, False),
    ],
)
def test_rows_run_over_lanes_where_columns_fill_them_badly(
    c: int,
    h: int,
    w: int,
    n: int,
    constant: bool,
    turned: bool,
    isa: str,
    golden: Callable[[str, str], None],
) -> None:
    text = CONVOLUTION.format(c=c, h=h, w=w, n=n)
    packed = pack_constants(parse_program(text), [1] if constant else [], CPUS[isa])
    assert [k.name for k in packed.kernels] == ["pack_weight_panels"] * turned + ["y"]
    after = schedule(print_program(packed), isa)
    assert bool(re.search(r"for a0 in .* vector", after["block_contraction"])) == turned
    if turned:  # what registers hold is transposed: rows of lanes are stored
        assert "exchange" in after["kernel"] and "scatter" not in after["kernel"]
    if (turned, isa) == (True, "avx512"):
        golden("tile/turned.txt", after["block_contraction"])


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_a_transposed_side_is_packed_by_squares(isa: str) -> None:
    assert "# free register\n" in schedule(TRANSPOSED, isa)["stage_transposes"].split("panel0[")[0]


SHORT, UNALIGNED = 112, 145


@pytest.mark.parametrize(
    ("rows", "order"), [(144, ["1", "0"]), (UNALIGNED, ["0", "1"]), (SHORT, ["0", "1"])]
)
def test_squares_side_by_side_write_whole_lines(rows: int, order: list[str]) -> None:
    """Unless the lines are short beside those that are read, or do not begin with the cache's."""
    text = SQUARES.format(rows=rows)
    loops = re.findall(r"for b\d in b(\d)", schedule(text, "avx512")["stage_transposes"])
    assert loops == order


def schedule(text: str, isa: str) -> dict[str, str]:
    """The program after every pass; each is verified and interpreted, and the kernel level too."""
    program: Program = parse_program(text)
    inputs = inputs_of(program)
    want = interpret.run(program, inputs, widen=True)
    after: dict[str, str] = {}
    for label, change in CPU_SCHEDULE:
        program = step_of(program, change, CPUS[isa])
        tile_verify.verify(program)
        close(interpret.run(program, inputs, widen=True), want)
        after[label.split("_", 1)[1]] = print_program(program)
    kernels = lower.lower(program)
    kernel_verify.verify(kernels)
    close(kernel_interpret.run(kernels, inputs, widen=True), want)
    after["kernel"] = print_program(kernels)
    return after


PRODUCT = """
program loop matmul
size s0: 2..4096 near 32
size s1: 2..4096 near {near}
input x: f32[s0,1024]
input w: f32[1024,s1]

kernel y(x: f32[s0,1024], w: f32[1024,s1]) -> y: f32[s0,s1]
for a0 in 0..s0:  # free
    for a1 in 0..s1:  # free
        for a2 in 0..1024:  # reduce
            in0 = load x[a0, a2]
            in1 = load w[a2, a1]
            v0 = multiply(in0, in1)
            acc0 <- add(acc0, v0)
        y[a0, a1] = acc0

output y
"""


@pytest.mark.parametrize(("near", "packed"), [(16, False), (200, True)])
def test_rows_as_close_as_in_a_panel_are_not_packed(near: int, packed: bool) -> None:
    """Where a size is how far apart they are, its hint decides."""
    (kernel,) = parse_program(PRODUCT.format(near=near).lstrip()).kernels
    tiled = block_contraction(kernel, CPUS["avx2"], Choices())
    assert any(isinstance(s, Local) for s in walk(tiled.body)) == packed
