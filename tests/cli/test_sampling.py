"""Generation by a step that chooses the token: eager's tokens, few programs, the right chances."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.cli.sampling import Choice, Step, continued, padded
from weft.core.errors import SourceError

transformers = pytest.importorskip("transformers")


def model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def generated(m: Any, prompt: torch.Tensor) -> list[int]:
    with torch.no_grad():
        out = m.generate(
            prompt[None], attention_mask=torch.ones_like(prompt[None]), max_new_tokens=6,
            do_sample=False, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    return out[0, len(prompt) :].tolist()


def test_thirty_lengths_take_four_programs() -> None:
    """A prompt of one token is a step like others; many have a program of their own."""
    m, prompt = model(), torch.randint(1, 128, (44,))
    f: Any = weft.compile(Step(m, Choice()), dynamic=True)
    for n in (9, 1, 44, *range(2, 30)):
        tokens, seconds = continued(f, m, *padded(prompt[:n], 1), 6)
        assert tokens == [generated(m, prompt[:n])] and len(seconds) == 6, n
    assert sum(len(getattr(p, "made", [p])) for p in f.programs) <= 4
    assert not f.report.externs and not f.reasons


def test_rows_of_several_lengths() -> None:
    """Padded on the left, each row has the tokens that it has alone."""
    m, prompt = model(), torch.randint(1, 128, (9,))
    tokens, mask = padded(prompt, 3)
    assert mask.sum(1).tolist() == [9, 8, 7]
    f: Any = weft.compile(Step(m, Choice()), dynamic=True)
    wanted = [generated(m, prompt[i:]) for i in range(3)]
    assert continued(f, m, tokens, mask, 6)[0] == wanted


@pytest.mark.parametrize(
    ("choice", "likely"),
    [
        (Choice(1.0), [0.5, 0.3, 0.15, 0.05]),
        (Choice(0.5), [0.25, 0.09, 0.0225, 0.0025]),
        (Choice(1.0, top_k=2), [0.5, 0.3, 0, 0]),
        (Choice(1.0, top_p=0.75), [0.5, 0.3, 0, 0]),
        (Choice(1.0, 3, 0.4), [1, 0, 0, 0]),
        (Choice(), [1, 0, 0, 0]),
    ],
)
def test_tokens_have_their_chances(choice: Choice, likely: list[float]) -> None:
    torch.manual_seed(0)
    order, count = [2, 0, 3, 1], 20_000
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()[order].repeat(count, 1)
    wanted = torch.tensor(likely)[order] / sum(likely)
    for choose in (choice, weft.compile(choice.__call__)):
        found = torch.bincount(choose(logits)[:, 0], minlength=4) / count
        assert ((found - wanted).abs() <= 5 * (wanted * (1 - wanted) / count).sqrt()).all()


def test_a_seed_decides() -> None:
    f: Any = weft.compile(Choice(1.0, 40, 0.9).__call__)
    logits = torch.randn(64, 128)

    def drawn(seed: int) -> list[int]:
        torch.manual_seed(seed)
        return f(logits)[:, 0].tolist()

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.parametrize("wrong", [(-1.0, 0, 1.0), (1.0, -1, 1.0), (1.0, 0, 0.0), (1.0, 0, 1.1)])
def test_what_is_no_choice(wrong: tuple[float, int, float]) -> None:
    with pytest.raises(SourceError, match="a temperature from 0, a top-k from 0 and a top-p in"):
        Choice(*wrong)
