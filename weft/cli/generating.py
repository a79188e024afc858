"""`weft run FOLDER --generate TEXT`: tokens per second of a language model, by several backends.

Each backend has a process of its own, in which the model's `generate` runs with its forward
compiled for any size: greedily, with a cache of keys and values that grows.
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group

from weft.cli.bench import Bench
from weft.cli.output import table
from weft.cli.program import SourceSpec
from weft.cli.suite_text import machine
from weft.core.errors import SourceError
from weft.runtime.child import ChildError

ROUNDS = 3


@dataclass(frozen=True)
class Generation:
    """One backend: its new tokens, or why there are none; seconds of the first token when nothing
    was compiled, and medians of the first token and of each token after it once all was."""

    backend: str
    tokens: Sequence[int] = ()
    cold: float | None = None
    prefill: float | None = None
    decode: float | None = None
    failure: str | None = None


class Encoding:
    """A folder's tokenizer; without one a text is numbers of tokens."""

    def __init__(self, folder: str) -> None:
        self.tokenizer: Any = None
        if not Path(folder).is_dir():
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
    spec: SourceSpec, bench: Bench, prompt: Sequence[int], count: int, rounds: int = ROUNDS
) -> list[Generation]:
    """The backends of a Bench, loaded one after another, then timed in turn."""
    request = {"source": asdict(spec), "prompt": list(prompt), "count": count}
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


def generation_table(title: str, rows: Sequence[Generation], prompt: int) -> Group:
    """Tokens per second of each backend, and whether its tokens are those of the first."""
    columns = ("backend", "first token, cold s", "prefill tokens/s", "decode tokens/s", "tokens")
    return table(title, columns, [_cells(row, rows[0], prompt) for row in rows])


def _cells(row: Generation, first: Generation, prompt: int) -> list[str]:
    if row.failure is not None:
        return [row.backend, "-", "-", "-", row.failure]
    pairs = enumerate(zip(row.tokens, first.tokens, strict=False))
    told = next((f"differ from number {i}" for i, (a, b) in pairs if a != b), "same")
    told = "-" if row is first or first.failure else told
    rates = [prompt / (row.prefill or 1), 1 / row.decode if row.decode else 0.0]
    return [row.backend, f"{row.cold:.2f}", *(f"{rate:.1f}" for rate in rates), told]


def generation_json(title: str, rows: Sequence[Generation], prompt: int) -> dict[str, Any]:
    facts = {"title": title, "machine": machine(on_cpu=True), "prompt_tokens": prompt}
    return {**facts, "backends": [asdict(row) for row in rows]}
