"""Greedy generation by a model of transformers, with the seconds that each token took.

tokens, seconds = generate(model, prompt=[1, 17, 4], count=64)
"""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from weft.cli.program import IrText, Source
from weft.core.errors import SourceError


class Watch:
    """A streamer of transformers: the time of the prompt, and of each token after it."""

    def __init__(self) -> None:
        self.times = [time.perf_counter()]

    def put(self, _: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def generate(model: Any, prompt: Sequence[int], count: int) -> tuple[list[int], list[float]]:
    """Generate `count` tokens; those, and the seconds that each took."""
    watch, given = Watch(), torch.tensor([list(prompt)])
    with torch.no_grad():
        out = model.generate(
            given, attention_mask=torch.ones_like(given), do_sample=False, streamer=watch,
            max_new_tokens=count, min_new_tokens=count,
        )  # fmt: skip
    start, _, *later = watch.times
    times = [start, *later]
    return out[0, len(prompt) :].tolist(), [b - a for a, b in pairwise(times)]


def checked(program: Source | IrText, prompt: Sequence[int]) -> Source:
    """The program; SourceError where it is no language model, or the prompt is nothing to it."""
    model: Any = getattr(program, "callable", None)
    if not isinstance(program, Source) or not getattr(model, "can_generate", bool)():
        raise SourceError(f"{program.title} is no model that generates tokens")
    most = model.config.get_text_config().vocab_size
    if not prompt or not all(0 <= token < most for token in prompt):
        raise SourceError(f"a prompt is one or more tokens from 0 to {most - 1}")
    return program
