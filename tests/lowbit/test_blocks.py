"""Blocks of GGUF decode as gguf-py's reference does, bit for bit; compiled as in eager."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from torch import nn

import weft
from tests.lowbit.files import random_blocks
from weft.lowbit.blocks import BLOCKS
from weft.lowbit.modules import LowBitEmbedding, LowBitLinear

QUANTISED = [number for number, block in BLOCKS.items() if block.elements > 1]


@pytest.mark.parametrize("number", QUANTISED, ids=lambda n: BLOCKS[n].name)
def test_random_blocks(number: int) -> None:
    raw = random_blocks(Kind(number), 7, 3)
    storage = BLOCKS[number].read(torch.from_numpy(raw))
    expected = dequantize(raw.reshape(7, -1), Kind(number))
    assert BLOCKS[number].name == Kind(number).name
    assert np.array_equal(storage.weight(torch.float32).numpy(), expected)
    stored = sum(part.nbytes for part in storage.parts())
    assert stored <= raw.nbytes * 1.06, "no more than the file has, but for unpacked scales"


@pytest.mark.parametrize("number", [0, 1, 30])
def test_plain_tensors(number: int) -> None:
    values = torch.randn(5, 8)
    dtype = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}[number]
    raw = values.to(dtype).view(torch.uint8).reshape(5, 8, -1)
    found = BLOCKS[number].read(raw).weight(torch.float32)
    assert torch.equal(found, values.to(dtype).float())


@pytest.mark.parametrize("number", QUANTISED, ids=lambda n: BLOCKS[n].name)
def test_compiled_as_in_eager(number: int) -> None:
    dtype = torch.bfloat16 if number % 4 == 0 else torch.float32
    raw = random_blocks(Kind(number), 6, 2)
    if Kind(number) == Kind.MXFP4:
        raw[..., 0] = 120 + raw[..., 0] % 10
    storage = BLOCKS[number].read(torch.from_numpy(raw))
    linear, table = LowBitLinear(storage, None, dtype), LowBitEmbedding(storage, dtype)
    index = torch.tensor([[5, 0], [1, 1]])
    with torch.no_grad():
        x = table(index)
        assert torch.equal(x, storage.weight(dtype)[index])
        y = linear(x).double()
        both = nn.Sequential(table, linear)
        compiled = weft.compile(both, fallback="error")(index).double()
    assert (compiled - y).norm() <= (1e-6 if dtype == torch.float32 else 1.6e-2) * y.norm()
