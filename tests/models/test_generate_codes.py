"""`generate` with weights as codes, static caches, and prompts of several lengths: few programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft

transformers = pytest.importorskip("transformers")

Build = Callable[[nn.Linear], nn.Module]


class Int8Linear(nn.Module):
    """Codes i8 [N, K], a scale for each row [N]."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        scale = weight.abs().amax(1) / 127
        self.codes = nn.Buffer((weight / scale[:, None]).round().to(torch.int8))
        self.scale = nn.Buffer(scale.to(layer.weight.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.codes.to(x.dtype)) * self.scale


class Int4Linear(nn.Module):
    """Codes u8 [N, K/g, g/2]: element j in the low half, j + g/2 in the high; scales [N, K/g]."""

    def __init__(self, layer: nn.Linear, group: int = 32) -> None:
        super().__init__()
        weight = layer.weight.detach().float().unflatten(1, (-1, group))
        scale = weight.abs().amax(2) / 7
        codes = ((weight / scale[..., None]).round() + 8).to(torch.uint8)
        self.codes = nn.Buffer(codes[..., : group // 2] | codes[..., group // 2 :] << 4)
        self.scale = nn.Buffer(scale.to(layer.weight.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = torch.cat((self.codes & 15, self.codes >> 4), -1).to(x.dtype) - 8
        return F.linear(x, (codes * self.scale[..., None]).flatten(1))


def model(dtype: torch.dtype, attention: Build | None, rest: Build | None) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    m = transformers.LlamaForCausalLM(config).eval().to(dtype)
    for part, build in ((m.model.layers[0].self_attn, attention), (m.model.layers[0].mlp, rest)):
        for name, layer in [*part.named_children()]:
            if build is not None and isinstance(layer, nn.Linear):
                setattr(part, name, build(layer))
    return m


def tokens(m: Any, lengths: Sequence[int], cache: str | None) -> list[list[int]]:
    """Of a batch of prompts of those lengths, padded on the left."""
    torch.manual_seed(sum(lengths))
    prompts = torch.randint(1, 128, (len(lengths), max(lengths)))
    given = torch.ones_like(prompts)
    for row, length in enumerate(lengths):
        prompts[row, : max(lengths) - length] = given[row, : max(lengths) - length] = 0
    settings = {} if cache is None else {"cache_implementation": cache}
    with torch.no_grad():
        out = m.generate(
            prompts, attention_mask=given, max_new_tokens=5, pad_token_id=0, do_sample=False,
            disable_compile=True, **settings,
        )  # fmt: skip
    return out.tolist()


def count(f: Any) -> int:
    """Programs, with those that a graph has for parts of its sizes."""
    return sum(len(getattr(program, "made", [program])) for program in f.programs)


@pytest.mark.parametrize(
    ("dtype", "parts", "cache", "batches"),
    [
        (torch.float32, (Int8Linear, Int4Linear), "static", [(n, 1) for n in range(31, 1, -1)]),
        (torch.bfloat16, (Int4Linear, Int8Linear), None, [(9, 4, 7), (14, 3, 2), (21, 20, 1)]),
    ],
    ids=["static, fp32, thirty lengths", "growing, bf16"],
)
def test_codes_and_prompts_of_several_lengths(
    dtype: torch.dtype,
    parts: tuple[Build, Build],
    cache: str | None,
    batches: Sequence[tuple[int, ...]],
) -> None:
    """Tokens are eager's, by at most four programs, none of which calls torch."""
    m = model(dtype, *parts)
    wanted = [tokens(m, lengths, cache) for lengths in batches]
    f = weft.compile(m, dynamic=True)
    for lengths, want in zip(batches, wanted, strict=True):
        assert tokens(f, lengths, cache) == want, lengths
    assert 1 <= count(f) <= 4 and not f.report.externs and not f.reasons
