"""`weft run FOLDER --generate TEXT`: tokens per second of a language model, by several backends.

Each backend has a process of its own, which runs the model's step compiled for any size: forward,
with a static cache of keys and values, and the choice of a token (sampling.py).
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Group

from weft.cli.bench import Bench
from weft.cli.generate import Job
from weft.cli.output import number, table
from weft.cli.program import SourceSpec
from weft.cli.source import load
from weft.cli.suite_text import machine
from weft.core.errors import SourceError
from weft.runtime.child import ChildError

ROUNDS = 3


@dataclass(frozen=True)
class Generation:
    """One backend: its new tokens by row, or why there are none; seconds of the first token when
    nothing was compiled, and medians of the first token and of each token after it once all was;
    bytes of the weights, and by how much the process grew when it compiled and generated."""

    backend: str
    tokens: Sequence[Sequence[int]] = ()
    programs: int | None = None  # that weft compiled
    stored_bytes: int | None = None
    grown_bytes: int | None = None
    cold: float | None = None
    prefill: float | None = None
    decode: float | None = None
    failure: str | None = None


class Encoding:
    """A folder's tokenizer; without one a text is numbers of tokens."""

    def __init__(self, folder: str) -> None:
        self.tokenizer: Any = None
        if not Path(folder).is_dir() and not folder.endswith(".gguf"):
            raise SourceError(f"--generate takes a model folder, and {folder} is none")
        if any(Path(folder).glob("tokenizer*")):
            from transformers import AutoTokenizer

            self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def tokens(self, text: str) -> list[int]:
        if self.tokenizer is not None:
            return list(self.tokenizer(text)["input_ids"])
        try:
            return [int(word) for word in text.split()]
        except ValueError:
            told = "the folder has no tokenizer: --generate takes numbers of tokens then, as in"
            raise SourceError(f'{told} --generate "17 4 230"') from None

    def text(self, tokens: Sequence[int]) -> str:
        if self.tokenizer is not None:
            return str(self.tokenizer.decode(tokens))
        return " ".join(map(str, tokens))


def compare(
    spec: SourceSpec, bench: Bench, prompt: Sequence[int], job: Job, rounds: int = ROUNDS
) -> list[Generation]:
    """The backends of a Bench, loaded one after another, then timed in turn."""
    request = {"source": asdict(spec), "prompt": list(prompt), "job": asdict(job)}
    rows: dict[str, Generation] = {}
    for worker in bench.workers:
        chosen = {**asdict(bench.options), "dynamic": True}
        facts = {"backend": worker.backend, "options": chosen}
        try:
            rows[worker.backend] = Generation(
                worker.backend, **worker.ask(do="generate", **request, **facts)
            )
        except ChildError as error:
            rows[worker.backend] = Generation(worker.backend, failure=error.message)
    times: dict[str, list[list[float]]] = {b: [] for b, row in rows.items() if not row.failure}
    for worker in bench.workers * rounds:
        if worker.backend in times:
            times[worker.backend].append(worker.ask(do="generate_again")["seconds"])
    for backend, found in times.items():
        first = statistics.median(each[0] for each in found)
        later = [seconds for each in found for seconds in each[1:]]
        each = statistics.median(later) if later else None
        rows[backend] = replace(rows[backend], prefill=first, decode=each)
    return list(rows.values())


COLUMNS = (
    "backend", "first token, cold s", "prefill tokens/s", "decode tokens/s", "programs",
    "grown MB", "tokens",
)  # fmt: skip


def generation_table(title: str, rows: Sequence[Generation], prompt: int) -> Group:
    """Tokens per second of each backend, all rows of the batch together; whether its tokens are
    those of the first."""
    stored = next((row.stored_bytes for row in rows if row.stored_bytes is not None), 0)
    title = f"{title}; weights {stored / 1e6:.1f} MB"
    return table(title, COLUMNS, [_cells(row, rows[0], prompt) for row in rows])


def _cells(row: Generation, first: Generation, prompt: int) -> list[str]:
    if row.failure is not None:
        return [row.backend, *"-----", row.failure]
    batch, told = len(row.tokens), "-" if row is first or first.failure else "same"
    if told == "same" and row.tokens != first.tokens:
        columns = zip(*row.tokens, *first.tokens, strict=True)
        at = next(i for i, each in enumerate(columns) if each[:batch] != each[batch:])
        told = f"differ from number {at}"
    rates = [batch * prompt / (row.prefill or 1), batch / row.decode if row.decode else 0.0]
    grown = None if row.grown_bytes is None else row.grown_bytes / 1e6
    cells = number(row.programs, "d"), number(grown, ".0f"), told
    return [row.backend, f"{row.cold:.2f}", *(f"{rate:.1f}" for rate in rates), *cells]


def generation_json(title: str, rows: Sequence[Generation], prompt: int) -> dict[str, Any]:
    facts = {"title": title, "machine": machine(on_cpu=True), "prompt_tokens": prompt}
    return {**facts, "backends": [asdict(row) for row in rows]}


def prompt_of(encoding: Encoding, spec: SourceSpec, text: str, length: int) -> list[int]:
    """The tokens of a text, or `length` by chance of the model's vocabulary."""
    if not length:
        return encoding.tokens(text)
    config: Any = load(replace(spec, meta=True)).callable.config  # type: ignore[union-attr]
    words = config.get_text_config().vocab_size
    chance = torch.Generator().manual_seed(spec.seed)
    return torch.randint(words, (length,), generator=chance).tolist()
