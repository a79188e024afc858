"""Images of any size: enlarged, padded, pooled, with gradients; and losses over their classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import weft

Program = Callable[[torch.Tensor], torch.Tensor]
ENLARGED: dict[str, Program] = {
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest_by_axis": lambda x: F.interpolate(x, scale_factor=(3.0, 1.5)),
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "smaller": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=True),
    "recomputed": lambda x: F.interpolate(
        x, scale_factor=1.25, mode="bilinear", recompute_scale_factor=True
    ),
    "to_a_size_of_another": lambda x: F.interpolate(x, size=(x.shape[3], x.shape[2])),
    "smoothed": lambda x: F.cross_entropy(
        x.flatten(1), torch.arange(x.shape[0]), label_smoothing=0.1
    ),
}
TRAINED: dict[str, Program] = {
    "reflected": lambda x: F.pad(x, (2, 1, 1, 3), mode="reflect"),
    "replicated": lambda x: F.pad(x, (2, 1, 1, 3), mode="replicate"),
    "pooled": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "averaged": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "enlarged": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
}
SHAPES = [(2, 3, 8, 9), (3, 2, 11, 7), (5, 4, 16, 23)]


@pytest.mark.parametrize("name", ENLARGED)
def test_one_program_for_images_of_any_size(name: str) -> None:
    f = weft.compile(ENLARGED[name], dynamic=True)
    for shape in SHAPES:
        x = torch.randn(shape)
        torch.testing.assert_close(f(x), ENLARGED[name](x), rtol=2e-5, atol=2e-5)
    assert len(f.programs) == 1 and not f.reasons


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_images_of_any_size(name: str) -> None:
    def gradient(fn: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        fn(x).cos().sum().backward()
        assert x.grad is not None
        return x.grad

    f = weft.compile(TRAINED[name], dynamic=True)
    for shape in SHAPES:
        x = torch.randn(shape)
        torch.testing.assert_close(gradient(f, x), gradient(TRAINED[name], x), rtol=2e-5, atol=2e-5)
    assert len(f.programs) == 2 and not f.reasons


def test_a_scale_that_rounds_is_compiled_for_each_size() -> None:
    """int(0.7 * s), which no quotient of integers is: a double rounds the product."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=0.7)

    f = weft.compile(fn, dynamic=True)
    for shape in SHAPES:
        x = torch.randn(shape)
        torch.testing.assert_close(f(x), fn(x))
    assert len(f.programs) == len(SHAPES) and not f.reasons


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[int((x.shape[0] - 10) * 1.5) :].sum(),  # rounds towards 0, from either side
        lambda x: x * ((x.shape[0] - 5) / ((x.shape[0] - 5) * 1.5)),  # 0 / 0
        lambda x: x * (x.shape[0] * 0.1 * 10.0) + x[: int(x.shape[0] * 2.5)],
        lambda x: F.interpolate(x[None, None, ::2], scale_factor=2.0),
    ],
)
def test_scaled_sizes_are_python_s(fn: Program) -> None:
    def result(call: Program, x: torch.Tensor) -> Any:
        try:
            return call(x)
        except ZeroDivisionError:
            return torch.tensor(-1.0)

    f = weft.compile(fn, dynamic=True)
    for n in (20, 7, 4, 5, 33, 9, 10):
        x = torch.arange(float(n))
        torch.testing.assert_close(result(f, x), result(fn, x))
