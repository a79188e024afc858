"""What shares a kernel, at sizes where one cache or another is exceeded: by price alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft

Program = Callable[[torch.Tensor], torch.Tensor]
SHAPES = [(32, 64), (512, 768), (4096, 4096)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "program",
    [
        lambda x: F.rms_norm(x, x.shape[-1:]),
        lambda x: F.layer_norm(x, x.shape[-1:]),
        lambda x: F.softmax(x, -1),
        lambda x: F.gelu(x) * x + 1,
    ],
    ids=["rms_norm", "layer_norm", "softmax", "gelu"],
)
def test_one_pass_over_rows_is_one_kernel(program: Program, shape: tuple[int, int]) -> None:
    compiled = weft.compile(program, target="cpu:avx512")
    compiled.prepare(torch.empty(shape))
    assert len(compiled.report.kernels) == 1


def test_a_norm_is_not_computed_again_for_every_column_of_a_product() -> None:
    model = nn.Sequential(nn.RMSNorm(256), nn.Linear(256, 512, bias=False))
    compiled = weft.compile(model, target="cpu:avx512")
    with torch.no_grad():
        compiled.prepare(torch.empty(64, 256))
    assert len([k for k in compiled.report.kernels if not k.name.startswith("pack")]) == 2


def test_statistics_of_a_group_are_not_computed_again_for_every_channel() -> None:
    """What is read twice stands in the last cache: the second read is no reason to fuse."""
    compiled = weft.compile(nn.GroupNorm(8, 64), target="cpu:avx512")
    with torch.no_grad():
        compiled.prepare(torch.empty(4, 64, 56, 56))
    assert len(compiled.report.kernels) == 2
