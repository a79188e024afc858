"""Kernels scheduled by hand: moves in a schedule's text, from the docs, natively and simulated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weft
from tests.tile.moves import PROGRAMS, inputs_of, program_of, with_kernel
from tests.tile.test_moves_values import AVX2, CHUNKS, SM90, random_moves
from weft.core.errors import WeftError
from weft.driver import compile_text
from weft.interpret import nests as interpret
from weft.options import Options
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU
from weft.text import print_program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "TUNING.md"
TEXTS = re.findall(r"^```\n((?:mm: .*\n)+)```$", PAGE.read_text(), re.MULTILINE)
SIZES = [(64, 64, 64), (65, 33, 17), (3, 40, 70)]


def check(text: str, sizes: tuple[int, int, int], **options: Any) -> str:
    """Compiles a product of such sizes with a schedule, compares, and gives the schedule."""
    m, k, n = sizes
    x, w = torch.randn(m, k), torch.randn(k, n)
    f = weft.compile(lambda x, w: x @ w, schedule=text, fallback="error", **options)
    exact = x.double() @ w.double()
    error = (f(x, w).double() - exact).norm() / exact.norm()
    assert error <= max(1e-6, 2 * float(((x @ w).double() - exact).norm() / exact.norm()))
    return f.ir("schedule")


def test_the_page_has_one_for_each_machine() -> None:
    assert len(TEXTS) == 2 and "parallel" in TEXTS[0] and "thread" in TEXTS[1]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_schedule_of_the_page_on_a_cpu(sizes: tuple[int, int, int]) -> None:
    shown = check(TEXTS[0], sizes, target="cpu:avx2")
    assert [line.split("#")[0].strip() for line in TEXTS[0].splitlines()] == [
        line for line in shown.splitlines() if line.startswith("mm: ")
    ]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_schedule_of_the_page_on_a_gpu(sizes: tuple[int, int, int]) -> None:
    check(TEXTS[1], sizes, target="cuda:sm_90a", simulate=True)


@pytest.mark.parametrize("sizes", [(32, 16, 16), (96, 40, 32), (65, 33, 17)])
def test_products_on_matrix_units(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    x, w = torch.randn(m, k, dtype=torch.bfloat16), torch.randn(k, n, dtype=torch.bfloat16)
    text = "\n".join(f"mm: {line}" for line in [*CHUNKS, "tensorize{at=b2}"])
    f = weft.compile(
        lambda x, w: x @ w,
        schedule=text,
        fallback="error",
        target="cuda:sm_90a",
        simulate=True,
    )
    torch.testing.assert_close(f(x, w).double(), x.double() @ w.double(), rtol=0.01, atol=0.05)
    assert re.search(r"\bmma\w*\(", f.ir("source"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("mm: split{axis=a9, by=8}", r"split\{axis=a9, by=8\} of kernel mm: unknown loop 'a9'"),
        ("mm: bind{axis=a0, to=parallel}\nmm.threads = no", "kernel mm has moves, so it has no"),
        ("mm: cut{axis=a0}", "unknown move 'cut': one of split, reorder"),
    ],
)
def test_a_wrong_line_is_told(line: str, told: str) -> None:
    with pytest.raises(WeftError, match=told):
        check(line, (9, 9, 9))


def test_equal_kernels_have_moves_of_their_own() -> None:
    def both(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.mm(x, w), torch.mm(w, x)

    x, w = torch.randn(9, 9), torch.randn(9, 9)
    f = weft.compile(both, schedule="mm_1: bind{axis=a0, to=parallel}", fuse="none")
    for got, want in zip(f(x, w), both(x, w), strict=True):
        torch.testing.assert_close(got, want)
    tile = f.ir("tile")
    assert tile.count("free parallel") == 1 and "mm.vector_axis" in f.ir("schedule")


SIMULATED = ["matmul", "softmax", "total", "argmax"]


def native(name: str, target: CPU | GPU, options: Options, seeds: range) -> None:
    """Random schedules of a kernel, run by what runs a program, beside the interpreter."""
    program = program_of(name)
    inputs = inputs_of(program)
    for seed in seeds:
        told, kernel = list[str](), program.kernels[0]
        for move, moved in random_moves(program, target, seed):
            told, kernel = [*told, f"y: {move}"], moved
        text = print_program(with_kernel(program, kernel))
        got = compile_text(text, options)(*map(torch.from_numpy, inputs)).numpy()
        (want,) = interpret.run(program, inputs, widen=True)
        lines = "\n".join([f"seed {seed}", *told, text])
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=lines)


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_moves_run_natively(name: str) -> None:
    native(name, AVX2, Options("cpu:avx2"), range(100, 102))


@pytest.mark.parametrize("name", SIMULATED)
def test_any_moves_are_simulated(name: str) -> None:
    native(name, SM90, Options("cuda:sm_90a", simulate=True), range(100, 101))
