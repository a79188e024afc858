"""`generate` of transformers with a compiled forward: eager's tokens, and few programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft

transformers = pytest.importorskip("transformers")


def model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def tokens(m: Any, length: int, sample: bool, cache: str | None) -> list[list[int]]:
    torch.manual_seed(length)
    prompt = torch.randint(1, 128, (1, length))
    settings = {} if cache is None else {"cache_implementation": cache}
    with torch.no_grad():
        out = m.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, pad_token_id=0,
            do_sample=sample, disable_compile=True, **settings,
        )  # fmt: skip
    return out.tolist()


@pytest.mark.parametrize("cache", [None, "static"], ids=str)
@pytest.mark.parametrize("sample", [False, True], ids=["greedy", "sampled"])
def test_tokens_are_eager_s(sample: bool, cache: str | None) -> None:
    m = model()
    wanted = [tokens(m, n, sample, cache) for n in (9, 14)]
    m.forward = compiled = weft.compile(m.forward)
    assert [tokens(m, n, sample, cache) for n in (9, 14)] == wanted
    assert not compiled.reasons


def test_another_prompt_compiles_nothing() -> None:
    """A prompt, one token after it, one token after more: each has one program for any length."""
    m = model()
    wanted = [tokens(m, n, False, None) for n in (9, 14, 5)]
    m.forward = compiled = weft.compile(m.forward, dynamic=True)
    assert tokens(m, 9, False, None) == wanted[0]
    known = len(compiled.programs)
    assert [tokens(m, n, False, None) for n in (14, 5)] == wanted[1:]
    assert len(compiled.programs) == known <= 3
