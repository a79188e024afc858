"""Programs on an OpenCL device beside what one kernel shows: library calls, faults, writes."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

import weft
from tests.gpu.opencl import opencl_device


@pytest.fixture(autouse=True)
def device() -> None:
    opencl_device()


def test_library_calls_run_between_kernels() -> None:
    x = torch.randn(3, 50)
    compiled = weft.compile(lambda x: torch.sort(x + 1)[0] * 2, target="opencl")
    torch.testing.assert_close(compiled(x), torch.sort(x + 1)[0] * 2)
    assert [op for op, _, _ in compiled.report.externs] == ["aten.sort.default"]


def test_inputs_are_written_and_returned() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y.mul_(x)
        return y + 1, x

    x, y = torch.randn(20, 30), torch.randn(20, 30)
    wanted = y.clone().mul_(x)
    got, same = weft.compile(function, target="opencl")(x, y)
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(got, wanted + 1)
    assert same is x


def test_strides_of_inputs_and_results() -> None:
    x = torch.randn(7, 12)[:, ::2].t()
    got = weft.compile(lambda x: x.exp(), target="opencl")(x)
    torch.testing.assert_close(got, x.exp())
    assert got.stride() == x.exp().stride()


def test_modules_train() -> None:
    torch.manual_seed(0)
    module, x = (
        torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4)),
        torch.randn(6, 8),
    )
    other = copy.deepcopy(module)
    weft.compile(module, target="opencl")(x).square().sum().backward()
    other(x).square().sum().backward()
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module[1].running_mean, other[1].running_mean)


def test_faults_are_raised_as_in_eager() -> None:
    at = weft.compile(lambda x, i: x[i] * 2, target="opencl")
    x = torch.randn(5)
    torch.testing.assert_close(at(x, torch.tensor([4, 0])), x[[4, 0]] * 2)
    with pytest.raises(weft.IndexOutOfRange, match="kernel"):
        at(x, torch.tensor([1, 7]))
    with pytest.raises(weft.DivisionByZero):
        weft.compile(lambda i: 7 // i, target="opencl")(torch.tensor([1, 0]))


def test_profiling_times_every_kernel() -> None:
    compiled = weft.compile(lambda x: x.softmax(-1), target="opencl", profile=True)
    compiled(torch.randn(40, 300))
    assert all((kernel.measured_us or 0) > 0 for kernel in compiled.report.kernels)


def test_command_line() -> None:
    text = "nn.Softmax(-1)(torch.randn(8, 500))"
    command = [sys.executable, "-m", "weft.cli.main", "run", "-c", text, "--target", "opencl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 output against float64 eager: passed" in done.stdout
