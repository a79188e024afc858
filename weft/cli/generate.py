"""Generation by a model of transformers in one process, with the seconds of each token.

job = Job(count=64, quantize="int4")
model = checked(load(spec), prompt, job).callable
run = lambda: job.run(step, model, prompt)      # step: Step(model, job.choice), or that compiled
tokens, seconds = run()
"""

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import weft
from weft.cli.program import IrText, Source
from weft.cli.sampling import Choice, continued, padded
from weft.core.errors import SourceError


@dataclass(frozen=True)
class Job:
    """What is generated: `count` tokens after each of `batch` prompts, chosen as `Choice` has it.

    Row i of the batch leaves out the first i tokens. Linears are quantised as weft.quantize does.
    """

    count: int = 64
    batch: int = 1
    quantize: str | None = None
    activations: str | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def choice(self) -> Choice:
        return Choice(self.temperature, self.top_k, self.top_p)

    def run(
        self, step: Callable[..., torch.Tensor], model: Any, prompt: Sequence[int]
    ) -> tuple[list[list[int]], list[float]]:
        """New tokens of each row, and the seconds of each step."""
        return continued(step, model, *padded(torch.tensor(prompt), self.batch), self.count)


def checked(program: Source | IrText, prompt: Sequence[int], job: Job) -> Source:
    """The program, quantised; SourceError for no language model, or a prompt that is none of it."""
    model: Any = getattr(program, "callable", None)
    if not isinstance(program, Source) or not getattr(model, "can_generate", bool)():
        raise SourceError(f"{program.title} is no model that generates tokens")
    text = model.config.get_text_config()
    if not prompt or not all(0 <= token < text.vocab_size for token in prompt):
        raise SourceError(f"a prompt is one or more tokens from 0 to {text.vocab_size - 1}")
    most = getattr(text, "max_position_embeddings", None)
    if most is not None and len(prompt) + job.count > most:
        told = f"a prompt of {len(prompt)} tokens and {job.count} more"
        raise SourceError(f"{told} are beyond the model's {most} positions")
    if job.quantize is not None:
        weft.quantize(model, job.quantize, activations=job.activations)  # type: ignore[arg-type]
    elif job.activations is not None:
        raise SourceError("--activations says how quantised Linears round: it takes --quantize")
    return program


def stored_bytes(model: torch.nn.Module) -> int:
    """Bytes of the storages of parameters and buffers, each counted once."""
    storages = (t.untyped_storage() for t in (*model.parameters(), *model.buffers()))
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


def resident_bytes() -> int | None:
    """Bytes of this process that are in memory; None where no /proc tells."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * mmap.PAGESIZE if path.exists() else None
