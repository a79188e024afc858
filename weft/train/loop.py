"""The loop over steps, with checkpoints and progress, and the evaluation.

for number, loss in run(step, batches, 10_000, "run.safetensors", every=1000):
    if number % 1000 == 0:
        print(held_out(map(batches, some_places)))      # held_out = evaluation(loss, model)
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

import weft
from weft.core.errors import WeftError
from weft.train.checkpoint import save
from weft.train.finite import not_finite
from weft.train.state import Compile, Loss, Objective, Step, ranks

Batches = Callable[[int], Sequence[Tensor]]
"""batches(place) is the batch of that number, from 0 on: a pure function, which any run may ask
for any place, so that one that resumes sees what it would have seen. Of several processes each has
a place of its own."""


def run(
    step: Step,
    batches: Batches,
    until: int,
    checkpoint: str | Path | None = None,
    every: int = 1000,
    log: int = 100,
) -> Iterator[tuple[int, Tensor]]:
    """Takes steps until the state has `until` of them; yields the number of each and its loss.

    Once its caller asks for the next one, a checkpoint is written where the number is a multiple
    of `every`, or `until`. Each `log` steps there is a line of progress on stderr.
    A loss, or a parameter to be saved, that is not finite is a WeftError: no checkpoint has it.
    """
    state, (rank, count) = step.state, ranks()
    console = Console(stderr=True, quiet=rank != 0, highlight=False, soft_wrap=True)
    seen, since = 0, time.perf_counter()
    while state.step < until:
        batch = batches(state.place + rank)
        loss = step(*batch)
        number, seen = state.step, seen + len(batch[0]) * count
        yield number, loss
        shows, saves = (number == until or number % n == 0 for n in (log, every))
        value = loss.item() if shows or saves else 0.0
        bad = [n for n, t in state.params.items() if saves and not_finite(t, True)]
        if bad or not math.isfinite(value):
            what = "; ".join([f"the loss of step {number} is {value:g}", *bad[:1]])
            how = "Step(..., check_finite=True) stops at the first such step, and names the tensor"
            raise WeftError(f"{what} is not finite: {how}" if bad else f"{what}: {how}")
        if shows:
            speed = seen / (time.perf_counter() - since)
            rate = f"rate {step.rate(number - 1):.3g}, {speed:,.0f} samples/s"
            console.print(f"step {number} of {until}, loss {value:.6g}, {rate}")
            seen, since = 0, time.perf_counter()
        if saves and checkpoint is not None:
            save(checkpoint, state)


def evaluation(
    loss: Loss, model: nn.Module, compile: Compile = weft.compile
) -> Callable[[Iterable[Sequence[Any]]], float]:
    """A function of batches: the mean loss of their rows, for the model as it then is, in eval
    mode; each loss is taken to be the mean over its batch."""
    objective = Objective(loss, model)
    program = compile(lambda *batch: objective(*batch))

    @torch.no_grad()
    def mean(batches: Iterable[Sequence[Any]]) -> float:
        total, count, training = 0.0, 0, [m for m in model.modules() if m.training]
        model.eval()
        for batch in batches:
            total += program(*batch).item() * len(batch[0])
            count += len(batch[0])
        for module in training:
            module.training = True
        return total / count if count else float("nan")

    return mean
