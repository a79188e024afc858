"""Kernels with rows on GPUs: one launch over the operands of all rows, in every language."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import weft
from tests.captures import capture_call
from tests.gpu.corpus.player import Player
from tests.gpu.corpus.schedules import lowerings
from tests.gpu.opencl import opencl_device
from tests.gpu.simulated_device import simulated
from tests.gpu.test_programs import SIMULATOR
from tests.tile.test_join_launches import MAPS, inputs_of, joined
from weft.config import config
from weft.core.errors import WeftError
from weft.core.passes import PassLog
from weft.driver import compile_text
from weft.emit.rows import emit_rows
from weft.interpret import nests as interpret
from weft.levels import lower
from weft.options import Options
from weft.runtime.cache import Cache
from weft.runtime.nvrtc import compile_all
from weft.scalar.nest import Rows
from weft.text import parse_program, print_program

LANGUAGES = ["cuda:sm_90a", "hip:gfx942", "opencl", "metal"]
SHAPES = (3, 4), (40, 50), (7,), (2, 5, 3), (1300,), (64, 33)


def momentum(*given: Tensor) -> list[Tensor]:
    """A step of an optimiser over several parameters, their gradients and states."""
    count = len(given) // 3
    params, grads, states = (given[i * count : (i + 1) * count] for i in range(3))
    after = [m * 0.9 + g for m, g in zip(states, grads, strict=True)]
    return [*(p - 0.1 * m for p, m in zip(params, after, strict=True)), *after]


def tensors() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for _ in range(3) for shape in SHAPES]


def launches(f: Any) -> list[int]:
    """Rows of each kernel."""
    return [k.rows for k in f.report.kernels]


def check(f: Any) -> Any:
    given = tensors()
    for found, wanted in zip(f(*given), momentum(*given), strict=True):
        torch.testing.assert_close(found, wanted)
    return f


@pytest.mark.parametrize("target", LANGUAGES)
def test_text(target: str, golden: Callable[[str, str], None]) -> None:
    text = compile_text(print_program(joined(MAPS)), Options(target)).ir("source")
    golden(f"gpu/joined_{target.partition(':')[0]}.txt", text)


@SIMULATOR
@pytest.mark.parametrize("target", ["cuda:sm_90a", "hip:gfx942", "metal"])
@pytest.mark.parametrize("level", ["loop", "tile"])
def test_text_runs_in_the_simulator(target: str, level: str) -> None:
    made = joined(MAPS)
    text = lower(made, Options(target), PassLog()).text(level)
    program = compile_text(text, Options(target, simulate=True))
    data = [torch.from_numpy(a) for a in inputs_of(made)]
    wanted = interpret.run(made, [a.numpy() for a in data])
    for found, want in zip(program(*data), wanted, strict=True):
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-6)


@SIMULATOR
@pytest.mark.parametrize("target", ["cuda:sm_90a", "hip:gfx942"])
def test_a_step_of_an_optimiser_is_one_launch(target: str) -> None:
    f = check(weft.compile(momentum, target=target, simulate=True, fallback="error"))
    assert launches(f) == [len(SHAPES)]


@SIMULATOR
def test_metal_has_room_for_fewer_operands() -> None:
    """Of five a row: six rows are 30."""
    f = check(weft.compile(momentum, target="metal", simulate=True, fallback="error"))
    assert launches(f) == [6]
    more = weft.compile(
        lambda *x: [y.sin() * 2 for y in x], target="metal", simulate=True, fallback="error"
    )
    given = [torch.randn(n) for n in range(2, 34)]
    for found, x in zip(more(*given), given, strict=True):
        torch.testing.assert_close(found, x.sin() * 2)
    assert sorted(launches(more)) == [2, 15, 15]


def test_opencl_as_eager() -> None:
    opencl_device()
    f = check(weft.compile(momentum, target="opencl", fallback="error"))
    assert launches(f) == [len(SHAPES)]


@SIMULATOR
def test_launched_in_place() -> None:
    """As on a device: parameters are written where they are."""
    with simulated():
        torch.manual_seed(0)
        params = [torch.randn(shape, requires_grad=True) for shape in SHAPES]
        twins = [p.detach().clone().requires_grad_() for p in params]
        mine, theirs = (torch.optim.SGD(own, 0.1, momentum=0.9) for own in (params, twins))
        step = weft.compile(mine.step, target="cuda:sm_90a")
        for _ in range(3):
            for p, q in zip(params, twins, strict=True):
                p.grad = torch.randn(p.shape)
                q.grad = p.grad.clone()
            step()
            theirs.step()
        for p, q in zip(params, twins, strict=True):
            torch.testing.assert_close(p, q)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_spills_nothing(arch: str) -> None:
    f = weft.compile(momentum, target=f"cuda:{arch}", simulate=True, fallback="error")
    f(*tensors())
    found = compile_all([f.ir("source")], arch, Cache(config.cache))
    used = [kernel for cubin in found.values() for kernel in cubin.kernels.values()]
    assert len(used) == 1 and not any(kernel.spill_bytes for kernel in used)


def test_products_stay_apart() -> None:
    """A copy engine fills their tiles, by what a launch says of one operand."""
    given = [torch.randn(64, 64) for _ in range(4)]
    f = weft.compile(lambda a, b, c, d: (a @ b, c @ d), target="cuda:sm_90a", simulate=True)
    f(*given)
    assert launches(f) == [1, 1]


def test_too_many_operands_for_a_launch() -> None:
    """At the loop level there are more launches then; below it is too late."""
    program = joined(MAPS)
    for level in ("tile", "kernel"):
        text = lower(program, Options("cuda:sm_90a"), PassLog()).text(level)
        row = next(line for line in text.splitlines() if line.startswith("row(y"))
        more = [row.replace("r: f32[2,5,4], t:", f"r{i}: f32[2,5,4], t{i}:") for i in range(7)]
        text = text.replace(row, "\n".join([row, *more]))
        with pytest.raises(WeftError, match="rows of 36 operands in all: a launch takes 30"):
            lower(parse_program(text), Options("metal"), PassLog())


@SIMULATOR
@pytest.mark.parametrize("more", [0, 1])
def test_accesses_are_wide_where_all_lengths_allow(more: int) -> None:
    """Of rows that are all multiples of four elements, but for `more`."""
    x, y = torch.randn(300, 512), torch.randn(70_000 + more)
    f = weft.compile(lambda x, y: (x.tanh() * 2, y.tanh() * 2), target="cuda:sm_90a", simulate=True)
    for found, given in zip(f(x, y), (x, y), strict=True):
        torch.testing.assert_close(found, given.tanh() * 2)
    assert launches(f) == [2] and ("load<f32x4>" in f.ir("cuda")) == (more == 0)


def test_the_corpus_runs_rows() -> None:
    """Its player launches them, and leaves the pass out as well."""
    function = lambda x, y: (x.tanh() * 2, y.tanh() * 2)  # noqa: E731
    given = torch.randn(70, 3), torch.randn(900)
    with torch.no_grad():
        captured = capture_call(function, given, {})
    failures: list[str] = []
    found = lowerings(captured, lambda kind, message: failures.append(message))
    rows = [[isinstance(s, Rows) for s in one.program.steps] for one in found]
    assert not failures and [True] in rows and [False, False] in rows
    player = Player()
    for one in found:
        if one.target.arch == "sm_90a":
            for a, b in zip(player.run(one, given), function(*given), strict=True):
                torch.testing.assert_close(a, b)


def test_a_size_that_no_row_says_is_an_error() -> None:
    step = next(s for s in joined(MAPS).steps if isinstance(s, Rows))
    assert step.sizes
    lost = replace(step, sizes=(), rows=tuple(replace(row, sizes=()) for row in step.rows))
    with pytest.raises(WeftError, match="of which none says"):
        emit_rows(lost, "k")
