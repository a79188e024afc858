"""The gradient of a convolution's filters: what it stores is contiguous along three taps alone."""

from __future__ import annotations

import torch

import weft

CHANNELS = 32


def gradient(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    how = [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False]
    return torch.ops.aten.convolution_backward(g, x, w, None, *how)[1]


def test_it_is_a_contraction_whose_columns_are_channels() -> None:
    torch.manual_seed(0)
    g, x = torch.randn(2, 2, CHANNELS, 9, 9)
    w = torch.randn(CHANNELS, CHANNELS, 3, 3)
    found = weft.compile(gradient, fallback="error")
    with torch.no_grad():
        torch.testing.assert_close(found(g, x, w), gradient(g, x, w), rtol=1e-4, atol=1e-4)
    wide = weft.compile(gradient, target="cpu:avx512", fallback="error")
    wide.prepare(g, x, w)
    assert f"local panel0: f32[2,9,9,{CHANNELS}]" in wide.ir("tile")
