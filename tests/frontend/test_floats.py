"""Floats as arguments: those that change are inputs where ops take them, else constants."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from weft.driver import Builder
from weft.frontend.autograd import graph_backend
from weft.options import Options

Program = Callable[[torch.Tensor, float], Any]
VALUES = (1.5, 2.5, 3.5, 0.1, -0.7)
FREE: dict[str, Program] = {
    "arithmetic": lambda x, by: (x * by + by) / 3 - by,
    "division": lambda x, by: x / by + 1,
    "comparison": lambda x, by: x > by,
    "a number by a number": lambda x, by: x.sum() * by,
    "temperature": lambda x, by: torch.softmax(x.float() / by, -1),
    "in place": lambda x, by: x.mul_(by).add_(by),
    "size": lambda x, by: x * by * x.shape[0],
    "one operation": lambda x, by: x * (1 - by) + x * (2 / by) - -by,
    "a size": lambda x, by: x * (by / x.shape[0]) + (x.shape[0] - by),
}
FREE_OF_FLOATS: dict[str, Program] = {
    "masked_fill": lambda x, by: x.masked_fill(x > 0, by),
    "where": lambda x, by: torch.where(x > 0, by, x),
    "clamp": lambda x, by: x.clamp(-1, by) + x.clamp(min=by) + x.clamp_max(by),
    "lerp": lambda x, by: x.lerp(x * 2, by),
    "alpha": lambda x, by: torch.add(x, x, alpha=by) - torch.sub(x * 2, x, alpha=-by),
    "full": lambda x, by: x * torch.full((3,), by) + torch.full_like(x, by) + x.new_full((3,), by),
    "fill": lambda x, by: x * 2 + x.fill_(by),
    "tensor": lambda x, by: x * torch.tensor(by),
    "slope": lambda x, by: F.leaky_relu(x, by),
    "result": lambda x, by: (x * by, by * 2),
}
FIXED: dict[str, Program] = {
    "expression": lambda x, by: x * ((by + 1e20) - 1e20) + (by - by),
    "power": lambda x, by: (x.abs() + 1) ** by,
    "eps": lambda x, by: F.layer_norm(x.float(), (3,), eps=abs(by)),
    "smaller": lambda x, by: x.long() * min(by, 2),
    "product": lambda x, by: x * (by * by),
    "square": lambda x, by: x * by**2,
    "complex": lambda x, by: torch.view_as_real(torch.complex(x, x).to(torch.complex128) * by),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64)


def run(f: Program, fn: Program, dtype: torch.dtype) -> None:
    """Against eager; in bf16, where eager rounds each step, against constants in its place."""
    want = fn if dtype is not torch.bfloat16 else weft.compile(fn, dynamic=False)
    for i, value in enumerate(VALUES):
        x = torch.randn(2 + i, 3).mul(4).to(dtype)
        torch.testing.assert_close(f(x.clone(), value), want(x.clone(), value))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*FREE, *FREE_OF_FLOATS])
def test_a_float_is_an_input(name: str, dtype: torch.dtype) -> None:
    if not dtype.is_floating_point and name in ("in place", *FREE_OF_FLOATS):
        pytest.skip("eager refuses it, or has special cases of its number")
    fn, session = {**FREE, **FREE_OF_FLOATS}[name], Builder(Options()).session()
    torch.compiler.reset()
    run(torch.compile(fn, backend=graph_backend(session)), fn, dtype)
    assert len(session.programs) == 2 and not session.reasons


@pytest.mark.parametrize("name", [*FREE, *FREE_OF_FLOATS, *FIXED])
def test_programs_of_floats(name: str) -> None:
    fn = {**FREE, **FREE_OF_FLOATS, **FIXED}[name]
    f = weft.compile(fn)
    run(f, fn, torch.float32)
    assert not f.reasons and len(f.programs) == (len(VALUES) if name in FIXED else 2)


def test_a_float_that_changes_is_an_input_from_the_first_call() -> None:
    f = weft.compile(FREE["division"], dynamic=True)
    run(f, FREE["division"], torch.float32)
    assert len(f.programs) == 1


@torch.no_grad()
def test_a_float_of_a_module_is_an_input_once_it_has_changed() -> None:
    """Each float that is an input costs every call 2 us: batch norm has two, an embedding one."""

    class Scaled(nn.BatchNorm1d):
        by = 1.5

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * self.by

    module = Scaled(3).eval()
    f, inputs = weft.compile(module, dynamic=True), []
    for rows, by in enumerate((1.5, 1.5, 2.5, 3.5, 4.5), 4):
        module.by = by
        x = torch.randn(rows, 3)
        torch.testing.assert_close(f(x), module(x))
        inputs.append(weft.ir(f, "tensor").count(": f64[]"))
    assert len(f.programs) == 2 and inputs == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "values", [(0.0, -0.0), (-0.0, 0.0), (1.0, 2.0, 0.0, -0.0), (1.0, 2.0, -0.0, 0.0)]
)
@pytest.mark.parametrize("name", ["float", "product", "remainder"])
def test_zeros_have_signs(name: str, values: tuple[float, ...]) -> None:
    fn: Program = {
        "float": lambda x, by: x / by,
        "product": lambda x, by: x / (by * by * by),
        "remainder": lambda x, by: x / (by % 1),
    }[name]
    f = weft.compile(fn)
    for by in values:
        torch.testing.assert_close(f(torch.ones(3), by), fn(torch.ones(3), by))


def test_zeros_of_modules_have_signs() -> None:
    class Scaled(nn.Module):
        by = 0.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / self.by

    module = Scaled()
    f = weft.compile(module)
    for by in (0.0, -0.0, 2.0, 0.0):
        module.by = by
        torch.testing.assert_close(f(torch.ones(3)), module(torch.ones(3)))


def test_python_divides_by_zero() -> None:
    f = weft.compile(lambda x, by: x * (1 / by))
    for by in (1.5, 2.5, 3.5):
        f(torch.ones(3), by)
    with pytest.raises(ZeroDivisionError):
        f(torch.ones(3), 0.0)
    assert len(f.programs) == 2


def test_numbers_of_tensors_are_read_when_the_program_reads_them() -> None:
    def fn(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        number = t.item()
        t.add_(1)
        return x * number

    with torch._dynamo.config.patch(capture_scalar_outputs=True):  # type: ignore[attr-defined]
        for t in (torch.tensor(2.0), torch.tensor([3.0], dtype=torch.float64)):
            x = torch.ones(2)
            torch.testing.assert_close(weft.compile(fn)(x, t.clone()), fn(x, t.clone()))


def test_a_branch_on_a_float_is_guarded() -> None:
    def fn(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * 2 if by > 1 else x * by

    f = weft.compile(fn)
    run(f, fn, torch.float32)
    assert not f.reasons


def test_powers_in_training_have_a_program_each() -> None:
    f = weft.compile(lambda x, by: ((x.abs() + 1) ** by).sum())
    for by in VALUES:
        x = torch.randn(4, 3, requires_grad=True)
        got, want = (torch.autograd.grad(g(x, by), x) for g in (f, f._weft.fn))
        torch.testing.assert_close(got, want)
    assert not f.reasons


def test_gradients_are_eager_s() -> None:
    module = torch.nn.Linear(3, 3)
    f = weft.compile(lambda x, by: (module(x) * by + by).sum())
    for by in VALUES:
        x = torch.randn(4, 3)
        got, want = (torch.autograd.grad(g(x, by), module.parameters()) for g in (f, f._weft.fn))
        torch.testing.assert_close(got, want)
    assert not f.reasons


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.BatchNorm1d(6), lambda n: (n, 6)),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), lambda n: (n, 3, n + 3, 7)),
        (nn.InstanceNorm2d(4, affine=True), lambda n: (3, 4, n + 3, n)),
    ],
    ids=["rows", "images", "instances"],
)
def test_what_batch_norm_divides_by_is_of_any_size(module: nn.Module, shape: Any) -> None:
    eager = copy.deepcopy(module).double()
    f = weft.compile(module, dynamic=True, fallback="error")
    for n in (5, 9, 2, 7):
        x = torch.randn(shape(n), requires_grad=True)
        wide = x.detach().double().requires_grad_()
        for call, given in ((f, x), (eager, wide)):
            (call(given) ** 2 * 0.5 + call(given)).sum().backward()
        torch.testing.assert_close(x.grad, wide.grad.float(), rtol=1e-4, atol=1e-4)
        for found, expected in zip(module.buffers(), eager.buffers(), strict=True):
            torch.testing.assert_close(found, expected.to(found.dtype))
    assert len(f.programs) == 2
