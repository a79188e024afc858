"""What GPU kernels are priced at: bytes by whole sectors, waiting where few threads work."""

from __future__ import annotations

import pytest

from weft.scalar.nest import Block
from weft.targets.gpu import GPUS
from weft.text import parse_program
from weft.tile.price.cost import kernel_time_us
from weft.tile.price.latency import latency_ns

TARGET = GPUS["cuda:sm_90a"]
BYTES_PER_US = TARGET.memory_bytes_per_ns * TARGET.cores * 1e3

COLUMNS = """
kernel y(x: f32[{rows},{columns}]) -> y: f32[{columns}]
for a0 in 0..{columns}:  # free
    for a1 in 0..{rows}:  # reduce
        in0 = load x[a1, a0]
        acc0 <- maximum(acc0, in0)
    y[a0] = acc0
"""
ROWS = """
kernel y(x: f32[{rows},{columns}]) -> y: f32[{rows}]
for a0 in 0..{rows}:  # free
    for a1 in 0..{columns}:  # reduce
        in0 = load x[a0, a1]
        acc0 <- maximum(acc0, in0)
    y[a0] = acc0
"""
APART = """
kernel y(x: f32[{rows},{columns},{apart}]) -> y: f32[{rows},{columns}]
for a0 in 0..{rows}:  # free
    for a1 in 0..{columns}:  # free
        in0 = load x[a0, a1, 0]
        y[a0, a1] = in0
"""


def body(kernel: str, rows: int, columns: int, apart: int = 1) -> Block:
    facts = {"rows": rows, "columns": columns, "apart": apart}
    signature = kernel.split("(", 1)[1].split("\n", 1)[0].format(**facts)
    given, _, result = signature.partition(") -> ")
    text = f"program loop f\ninput {given}\n{kernel.format(**facts)}\noutput y\n"
    assert result.startswith("y")
    return parse_program(text, "f").kernels[0].body


def price(*given: object) -> float:
    return kernel_time_us(body(*given), TARGET)  # type: ignore[arg-type]


@pytest.mark.parametrize("kernel", [COLUMNS, ROWS])
def test_what_fills_the_device_costs_its_bytes(kernel: str) -> None:
    size = 1 << 15
    wanted = size * size * 4 / BYTES_PER_US + TARGET.launch_us
    assert price(kernel, size, size) == pytest.approx(wanted, rel=0.05)


def test_a_small_kernel_waits_for_its_loads() -> None:
    assert latency_ns(body(ROWS, 8, 64), TARGET) == 400.0
    assert price(ROWS, 8, 64) == TARGET.launch_us + 0.4


def test_few_columns_wait_longer() -> None:
    """Of 64 columns one thread each, or 16 that share it, goes through all rows."""
    assert price(COLUMNS, 1 << 16, 64) > 10 * price(ROWS, 64, 1 << 16)
    assert price(COLUMNS, 1 << 16, 64) > 5 * price(COLUMNS, 64, 1 << 16)


def test_elements_that_lie_apart_cost_their_sectors() -> None:
    near, apart, far = (price(APART, 4096, 4096, n) - TARGET.launch_us for n in (1, 4, 64))
    assert apart == pytest.approx(near * 2.5, rel=0.05)  # 16 bytes and 4 instead of 4 and 4
    assert far == pytest.approx(near * 4.5, rel=0.05)  # no more than a sector of 32


PRODUCT = """
kernel y(x: {dtype}[2000,2000], w: {dtype}[2000,2000]) -> y: f32[2000,2000]
for a0 in 0..2000:  # free
    for a1 in 0..2000:  # free
        for a2 in 0..2048:  # reduce
            in0 = load x[a0, a2] if a2 < 2000 else 0.0{literal}
            in1 = load w[a2, a1] if a2 < 2000 else 0.0{literal}
            acc0 <- add(acc0, multiply({cast}(in0), {cast}(in1)))
        y[a0, a1] = acc0
"""


def test_masks_of_sides_keep_no_product_from_the_matrix_units() -> None:
    """They are gone once the sides are staged."""
    given = "input x: {dtype}[2000,2000]\ninput w: {dtype}[2000,2000]\n"
    text = "program loop f\n" + given + PRODUCT + "\noutput y\n"

    def priced(dtype: str, literal: str) -> float:
        cast = "f32" if literal else ""
        shown = text.format(dtype=dtype, literal=literal, cast=cast)
        return kernel_time_us(parse_program(shown, "f").kernels[0].body, TARGET)

    assert 6 * priced("bf16", ":bf16") < priced("f32", "")
