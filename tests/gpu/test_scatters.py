"""Scatters by atomic stores: which are, what they give, and what finds where they are wrong."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import weft
import weft.link.simulator
from weft.core.errors import VerifyError
from weft.driver import compile_text
from weft.interpret import nests as interpret
from weft.link.gpu import has_compiler, store
from weft.loop.verify import verify
from weft.options import Options
from weft.runtime.nvrtc import compile_cubin
from weft.scalar.nest import Program
from weft.targets.gpu import GPUS
from weft.text import parse_program, print_program
from weft.tile.moves.merge import read_elsewhere, readers_of
from weft.tile.passes.programs.narrow_buffers import narrow_buffers
from weft.tune.price.gpu import Price, price

SIMULATOR = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")
CUDA = "cuda:sm_90a"
Function = Callable[..., torch.Tensor]


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def places(below: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(0, below, shape).to(dtype)


def put(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return x.index_put((i, j), v, accumulate=True)


def embedding_gradient(g: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.embedding_dense_backward(g, i, 300, -1, False)


ALONG_ROWS: Function = lambda x, i, y: x.scatter_add(1, i, y)  # noqa: E731
ROWS: Function = lambda x, i, y: x.index_add(0, i, y)  # noqa: E731
PROGRAMS: dict[str, tuple[Function, Any]] = {
    "along rows": (ALONG_ROWS, lambda: (floats(65, 70), places(70, 65, 90), floats(65, 90))),
    "along columns": (
        lambda x, i, y: x.scatter_add(0, i, y),
        lambda: (floats(300, 70), places(300, 640, 70), floats(640, 70)),
    ),
    "in the middle": (
        lambda x, i, y: x.scatter_add(1, i, y),
        lambda: (floats(3, 20, 33), places(20, 3, 90, 33), floats(3, 90, 33)),
    ),
    "one place": (ROWS, lambda: (floats(5, 64), places(1, 900), floats(900, 64))),
    "rows": (ROWS, lambda: (floats(100, 64), places(100, 1000), floats(1000, 64))),
    "rows of i32 indices": (
        ROWS,
        lambda: (floats(100, 64), places(100, 1000, dtype=torch.int32), floats(1000, 64)),
    ),
    "scaled": (
        lambda x, i, y: x.index_add(0, i, y, alpha=3).relu(),
        lambda: (floats(100, 64), places(100, 1000), floats(1000, 64)),
    ),
    "columns": (
        lambda x, i, y: x.index_add(1, i, y),
        lambda: (floats(64, 100), places(100, 500), floats(64, 500)),
    ),
    "histogram": (
        lambda i: torch.zeros(100, dtype=torch.int64).index_add(0, i, torch.ones_like(i)),
        lambda: (places(100, 5000),),
    ),
    "i32": (
        lambda x, i, y: x.scatter_add(0, i, y),
        lambda: (places(9, 200).int(), places(200, 5000), places(9, 5000).int()),
    ),
    "f64": (ROWS, lambda: (floats(100, 8).double(), places(100, 900), floats(900, 8).double())),
    "bf16": (ROWS, lambda: (floats(99, 8).bfloat16(), places(99, 900), floats(900, 8).bfloat16())),
    "f16": (ROWS, lambda: (floats(99, 8).half(), places(99, 900), floats(900, 8).half())),
    "index_put": (
        put,
        lambda: (floats(20, 30, 5), places(40, 700) - 20, places(30, 700), floats(700, 5)),
    ),
    "embedding": (embedding_gradient, lambda: (floats(900, 64), places(300, 900))),
    "products": (
        lambda x, i, a, b: x.index_add(0, i, a @ b),
        lambda: (floats(9, 70), places(9, 100), floats(100, 40), floats(40, 70)),
    ),
    "sums": (
        lambda x, i, y: x.index_add(0, i, y.sum(1)).softmax(0),
        lambda: (floats(9), places(9, 500), floats(500, 300)),
    ),
    "in turn": (
        lambda x, i, y: x.index_add(0, i, y).index_add(0, i, y * 2),
        lambda: (floats(100, 64), places(100, 1000), floats(1000, 64)),
    ),
    "in place": (
        lambda x, i, y: x.clone().index_add_(0, i, y) + x,
        lambda: (floats(100, 64), places(100, 1000), floats(1000, 64)),
    ),
    "transposed": (
        lambda x, i, y: x.t().scatter_add(0, i.t(), y.t()),
        lambda: (floats(65, 70), places(70, 65, 90), floats(65, 90)),
    ),
    "NaN": (
        lambda x, i, y: x.index_add(0, i, y),
        lambda: (floats(100), places(100, 999), floats(999).log()),
    ),
}  # fmt: skip


def compiled(function: Function, **options: Any) -> Any:
    options = {"target": CUDA, "simulate": True, "fallback": "error", **options}
    return weft.compile(function, **options)


def exact(function: Function, args: Any) -> torch.Tensor:
    """In float64, rounded once."""
    wide = function(*(a.double() if a.is_floating_point() else a for a in args))
    return wide.to(function(*args).dtype)


@SIMULATOR
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str) -> None:
    torch.manual_seed(0)
    function, make = PROGRAMS[name]
    f, args = compiled(function), make()
    wanted = exact(function, args)
    near = {"rtol": 1e-5, "atol": 5e-5} if wanted.dtype is torch.float32 else {}
    for _ in range(2):  # the second call begins anew
        torch.testing.assert_close(f(*args), wanted, equal_nan=True, **near)
    assert "atomic_add" in f.ir("loop") and "atomic_add(" in f.ir("cuda")


def some(target: str = CUDA, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """A scatter that is worth atomic stores, compiled, and its arguments."""
    f = compiled(ROWS, target=target, **options)
    return f, (floats(300, 8).to(dtype), places(300, 2000), floats(2000, 8).to(dtype))


@SIMULATOR
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_bad_places_are_faults_and_good_ones_of_later_calls_are_right(dtype: torch.dtype) -> None:
    f = compiled(ROWS)
    x, i, y = floats(300, 8), places(300, 2000).to(dtype), floats(2000, 8)
    for bad in (-1, 300):
        with pytest.raises(weft.WeftError, match="range"):
            f(x, torch.where(torch.arange(2000) == 1234, bad, i).to(dtype), y)
    torch.testing.assert_close(f(x, i, y), exact(ROWS, (x, i, y)), rtol=1e-5, atol=5e-5)


@SIMULATOR
@pytest.mark.parametrize(("rows", "entries"), [(0, 0), (7, 0), (7, 1), (1, 1)])
@pytest.mark.parametrize("columns", [0, 1, 5])
def test_few_or_no_elements(rows: int, entries: int, columns: int) -> None:
    x, i, y = floats(rows, columns), places(max(rows, 1), entries), floats(entries, columns)
    for schedule in ("", "*.atomic.index_add = yes") if rows * columns * entries else ("",):
        f = compiled(ROWS, schedule=schedule)
        torch.testing.assert_close(f(x, i, y), ROWS(x, i, y))


@SIMULATOR
def test_of_any_size() -> None:
    f = compiled(ROWS, dynamic=True)
    for rows, entries, columns in ((300, 2000, 8), (17, 999, 3), (300, 2001, 65)):
        args = floats(rows, columns), places(rows, entries), floats(entries, columns)
        torch.testing.assert_close(f(*args), exact(ROWS, args), rtol=1e-5, atol=5e-5)
    assert "atomic_add" in f.ir("loop")


# ---- which


def test_floats_keep_their_order_where_algorithms_are_deterministic() -> None:
    """Integers do not need it; a program that was made before is another one."""
    f, args = some()
    f.prepare(*args)
    whole = [a.long() for a in args]
    torch.use_deterministic_algorithms(True)
    try:
        f.prepare(*args)
        kept, exactly = compiled(ROWS), compiled(ROWS)
        kept.prepare(*args)
        exactly.prepare(*whole)
    finally:
        torch.use_deterministic_algorithms(False)
    assert f.ir("loop").count("atomic_add") == 1 and "local table" in f.ir("loop")
    assert "atomic_add" not in kept.ir("loop") and "atomic_add" in exactly.ir("loop")


@SIMULATOR
def test_a_change_of_the_mode_is_another_program() -> None:
    f, args = some()
    for ordered in (False, True, False):
        torch.use_deterministic_algorithms(ordered)
        try:
            torch.testing.assert_close(f(*args), exact(ROWS, args), rtol=1e-5, atol=5e-5)
        finally:
            torch.use_deterministic_algorithms(False)
    assert len(weft.driver.compilation(f).programs) == 2


@pytest.mark.parametrize("target", ["metal", "opencl", "cpu:avx2"])
def test_targets_without_atomics_of_floats_fold_in_tables(target: str) -> None:
    f, args = some(target, simulate=False)
    f.prepare(*args)
    assert "atomic" not in f.ir("tile") and "local table" in f.ir("tile")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_narrow_integers_fold_in_tables(dtype: torch.dtype) -> None:
    f, args = some(dtype=dtype)
    f.prepare(*args)
    assert "atomic" not in f.ir("tile")


def test_few_values_are_folded_at_once_and_the_choice_is_told() -> None:
    """A launch costs more than some values one after the other."""
    f, few = compiled(ROWS), (floats(4, 64), places(4, 2), floats(2, 64))
    f.prepare(*few)
    assert "atomic.index_add = no" in f.ir("schedule") and "atomic_add" not in f.ir("loop")
    other = compiled(ROWS, schedule="*.atomic.index_add = yes")
    other.prepare(*few)
    assert "atomic_add" in other.ir("loop")


# ---- what the levels know of it

PROGRAM = """
program loop f
input x: f32[4,6]
input i: i64[9]
input y: f32[9,6]

kernel z_start(x: f32[4,6]) -> z: f32[4,6]
for a0 in 0..4:  # free
    for a1 in 0..6:  # free
        in0 = load x[a0, a1]
        z[a0, a1] = in0

kernel z(i: i64[9], y: f32[9,6]) -> z: f32[4,6]
for a0 in 0..9:  # free
    in0 = load i[a0]
    v0 = checked_index(in0, 4)
    for a1 in 0..6:  # free
        in1 = load y[a0, a1]
        z[v0, a1] = in1 atomic_add

output z
"""


def parsed(text: str = PROGRAM) -> Program:
    return parse_program(text, "f")


@pytest.mark.parametrize("function", ["add", "maximum", "minimum"])
def test_the_interpreter_combines(function: str) -> None:
    program = parsed(PROGRAM.replace("atomic_add", f"atomic_{function}"))
    verify(program)
    assert print_program(program) == print_program(parsed(print_program(program)))
    x, i, y = (np.random.default_rng(0).normal(size=s).astype("f4") for s in ((4, 6), 9, (9, 6)))
    i = np.array([0, 3, 3, 1, 0, 3, 3, 3, 0])
    wanted = x.copy()
    getattr(np, function).at(wanted, i, y)
    np.testing.assert_array_equal(interpret.run(program, [x, i, y])[0], wanted)


def test_values_are_combined_with_what_was_written() -> None:
    whole = parsed()
    alone = Program("loop", "f", whole.inputs, whole.outputs, (whole.steps[1],) * 2)
    with pytest.raises(VerifyError, match="combines values with z before any step writes it"):
        verify(alone)
    filled_in_part = parsed(PROGRAM.replace("for a0 in 0..4:", "for a0 in 0..3:"))
    with pytest.raises(VerifyError, match="stores 18 of the 24 elements"):
        verify(filled_in_part)


def test_text_with_atomic_stores_is_for_targets_that_have_them() -> None:
    for target in ("cpu:avx2", "metal"):
        with pytest.raises(weft.WeftError, match="has atomic stores"):
            compile_text(PROGRAM, Options(target))


READER = """
kernel m(z: f32[4,6]) -> m: f32[4]
for a0 in 0..4:  # free
    for a1 in 0..6:  # reduce
        in0 = load z[a0, a1]
        acc0 <- maximum(acc0, in0)
    m[a0] = acc0

output m
""".strip()


def test_no_kernel_is_merged_across_atomic_stores() -> None:
    """The rows that are filled are not those that are read."""
    program = parsed(PROGRAM.replace("output z", READER))
    assert read_elsewhere((program.kernels[0], program.kernels[2]), readers_of(program))


def test_no_sums_are_narrowed() -> None:
    """Each value is rounded to bf16, their sums are not."""
    text = PROGRAM.replace("z[a0, a1] = in0", "v9 = round_bf16(in0)\n        z[a0, a1] = v9")
    text = text.replace("z[v0, a1] = in1", "v8 = round_bf16(in1)\n        z[v0, a1] = v8")
    program = parsed(text.replace("output z", READER))
    assert program.kernels[1].outputs[0] is not program.outputs[0]
    assert print_program(narrow_buffers(program)) == print_program(program)


# ---- the device's side


@SIMULATOR
@pytest.mark.parametrize("store_", ["({0})[0] = {1};", "({0})[0] += {1};"])
def test_a_plain_store_in_place_of_an_atomic_one_is_a_race(
    store_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    f, args = some()
    run = weft.link.simulator.simulate

    def plain(source: str, *rest: Any, **facts: Any) -> Any:
        change = lambda m: store_.format(m[1], m[2])  # noqa: E731
        return run(re.sub(r"atomic_add\((.*), (\w+)\);", change, source), *rest, **facts)

    monkeypatch.setattr(weft.link.simulator, "simulate", plain)
    with pytest.raises(weft.WeftError, match="nothing orders the two"):
        f(*args)


@pytest.mark.skipif(not has_compiler(GPUS[CUDA]), reason="no NVRTC")
@pytest.mark.parametrize("target", ["cuda:sm_80", CUDA, "cuda:sm_120"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_nvrtc_takes_them(target: str, dtype: torch.dtype) -> None:
    f, args = some(target, dtype, simulate=False)
    f.prepare(*args)
    kernels = compile_cubin(f.ir("cuda"), target.removeprefix("cuda:"), store()).kernels
    assert len(kernels) == 2 and not any(k.spill_bytes for k in kernels.values())


def test_levels(golden: Callable[[str, str], None]) -> None:
    made = compile_text(PROGRAM, Options(CUDA))
    texts = (f"// {level}\n{made.ir(level)}" for level in ("tile", "kernel", "cuda"))
    golden("gpu/scatter.txt", "\n".join(texts))


# ---- the exact price


def priced(function: Function, *args: torch.Tensor) -> Price:
    f = compiled(function, simulate=False, tune="off")
    f.prepare(*args)
    (levels,) = [p.artifact.levels() for p in weft.driver.compilation(f).programs]
    return price(levels.program("kernel").kernels[-1], GPUS[CUDA])


def test_columns_of_a_row_are_whole_sectors() -> None:
    """Four for a warp of f32, and no lane has the address of another."""
    found = priced(ROWS, floats(100, 64), places(100, 1024), floats(1024, 64))
    (touch,) = (t for t in found.counts.touches if t.kind == "atomic")
    assert touch.requests == 2048 and touch.units == touch.turns == 4 * 2048


@pytest.mark.parametrize(("rows", "least", "most"), [(1, 0.99, 1.01), (8, 0.7, 1), (1000, 0, 0.02)])
def test_values_at_few_places_wait_for_each_other(rows: int, least: float, most: float) -> None:
    """At one place one in a cycle."""
    count = 1 << 20
    found = priced(ROWS, floats(rows), places(rows, count), floats(count))
    assert found.bound == "atomics" and least <= (found.us - 2) * 1830 / count <= most


@SIMULATOR
@pytest.mark.parametrize("target", [CUDA, "cpu"])
def test_the_only_place_is_checked(target: str) -> None:
    """It is no part of the address."""
    f = compiled(ROWS, target=target, simulate=target == CUDA)
    x, i, y = floats(1, 8), places(1, 2000), floats(2000, 8)
    torch.testing.assert_close(f(x, i, y), exact(ROWS, (x, i, y)), rtol=1e-5, atol=2e-4)
    with pytest.raises((weft.WeftError, IndexError), match="range"):
        f(x, i + (torch.arange(2000) == 1234), y)
