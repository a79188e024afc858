"""A step of generation as one program: a language model's forward, and the choice of a token.

step = Step(model, Choice(temperature=0.8, top_k=40))
tokens, seconds = continued(weft.compile(step, dynamic=True), model, prompts, mask, count=64)

Caches are static, as long as the whole text, and masks cover all of it: steps after the first one
have the same sizes. Rows of several lengths are padded on the left, where the mask is 0.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from weft.core.errors import SourceError


@dataclass(frozen=True)
class Choice:
    """How a token is chosen: the likeliest where `temperature` is 0, else by chance.

    Logits are divided by the temperature; of all tokens the `top_k` likeliest (0 for all) take
    part, and of these the likeliest whose probabilities together reach `top_p`. SourceError for a
    temperature below 0, a top_k below 0, or a top_p not in (0, 1].
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not (self.temperature >= 0 and self.top_k >= 0 and 0 < self.top_p <= 1):
            raise SourceError(
                f"a token is chosen with a temperature from 0, a top-k from 0 and a top-p in "
                f"(0, 1], not {self.temperature}, {self.top_k} and {self.top_p}"
            )

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """The tokens [batch, 1], int64, of logits [batch, vocabulary]."""
        if not self.temperature:
            return logits.argmax(-1, keepdim=True)
        logits, count = logits.float() / self.temperature, logits.shape[-1]
        if not self.top_k and self.top_p == 1:
            return drawn(logits.softmax(-1))
        logits, tokens = logits.topk(min(self.top_k or count, count))  # sorted
        likely = logits.softmax(-1)
        before = likely.cumsum(-1) - likely
        return tokens.gather(-1, drawn(likely.where(before < self.top_p, 0)))


def drawn(weights: torch.Tensor) -> torch.Tensor:
    """A place [..., 1] of each row, by chance in proportion to the weights.

    The first of exponential clocks at these rates to ring is the one at i with probability w_i.
    """
    return (weights / torch.empty_like(weights).exponential_()).argmax(-1, keepdim=True)


class Step(nn.Module):
    """From tokens at the next positions to the token after them."""

    def __init__(self, model: Any, choice: Choice) -> None:
        super().__init__()
        self.model, self.choice = model, choice

    def forward(
        self, tokens: torch.Tensor, places: torch.Tensor, mask: torch.Tensor, cache: Any
    ) -> torch.Tensor:
        """`tokens` and `places` are [batch, n], `mask` [batch, whole length] is 1 but for padding;
        the result is [batch, 1]."""
        out = self.model(
            input_ids=tokens, position_ids=places, attention_mask=mask, past_key_values=cache,
            logits_to_keep=1,
        )  # fmt: skip
        return self.choice(out.logits[:, -1])


def continued(
    step: Callable[..., torch.Tensor], model: Any, prompts: torch.Tensor, mask: torch.Tensor,
    count: int,
) -> tuple[list[list[int]], list[float]]:  # fmt: skip
    """`count` tokens after each prompt, of [batch, n] with its mask; the seconds of each step."""
    from transformers import StaticCache

    cache: Any = StaticCache(model.config, max_cache_len=prompts.shape[1] + count)
    begun(cache, model, len(prompts))
    whole = torch.cat((mask, mask.new_ones(len(mask), count)), 1)
    places = (whole.cumsum(1) - 1).clamp(min=0)
    given_mask = None if mask.all() else whole
    found, given, times = list[torch.Tensor](), prompts, [time.perf_counter()]
    with torch.no_grad():
        for at in range(prompts.shape[1], prompts.shape[1] + count):
            given = step(given, places[:, at - given.shape[1] : at], given_mask, cache)
            found.append(given)
            times.append(time.perf_counter())
    return torch.cat(found, 1).tolist(), [b - a for a, b in pairwise(times)]


def begun(cache: Any, model: Any, batch: int) -> None:
    """Gives a cache its memory, so that the first step is a step like others."""
    text = model.config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    cache.early_initialization(batch, heads, size, model.dtype, model.device)


def padded(prompt: torch.Tensor, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`batch` prompts [batch, n] and their mask: row i leaves out the first i tokens of [n]."""
    ages = torch.arange(len(prompt)) >= torch.arange(batch)[:, None] % len(prompt)
    return prompt * ages, ages.long()
