"""A decoder of TinyLlama's width at 40 batches and lengths: `python -m bench.decoder`.

python -m bench.decoder --entry torch inductor --json decoder.json
Two layers with random weights; 0, 1 and primes are among the sizes. Each is compared with eager,
and graphs are counted: those that weft.compile makes programs of, or that torch.compile hands to
its backend. A size that eager refuses is left out.
"""

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch._inductor.compile_fx import compile_fx

import weft
from bench.families import difference
from weft.cli.output import show, table, write_json
from weft.cli.suite_text import machine
from weft.dynamo import weft_backend

FIRST = [(2, 17), (3, 64), (1, 1), (1, 31), (4, 1), (0, 5), (2, 0)]
BATCHES = (1, 2, 3, 4, 5, 7)
LENGTHS = (1, 2, 3, 5, 7, 11, 13, 16, 31, 32, 61, 64, 97, 100, 127, 128, 131)
BACKENDS: dict[str, Callable[..., Any]] = {"torch": weft_backend, "inductor": compile_fx}
ENTRIES = {"weft": "weft.compile", "torch": "torch.compile, weft", "inductor": "Inductor"}


def decoder(width: int, layers: int = 2, words: int = 32_000) -> torch.nn.Module:
    """Llama's: rotary positions, causal attention of few keys, a gated MLP."""
    config = transformers.LlamaConfig(
        hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=layers,
        num_attention_heads=width // 64, num_key_value_heads=max(1, width // 512),
        vocab_size=words, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaModel(config).eval()


def compiled(entry: str, model: torch.nn.Module) -> tuple[Callable[..., Any], Callable[[], int]]:
    """The model, and how many graphs it has been so far."""
    if entry == "weft":
        f = weft.compile(model)
        return f, lambda: len(f.programs)
    graphs: list[Any] = []
    backend = BACKENDS[entry]
    compiled = torch.compile(model, backend=lambda g, x: (graphs.append(g), backend(g, x))[1])
    return compiled, lambda: len(graphs)


def measure(entry: str, model: torch.nn.Module, count: int) -> dict[str, Any]:
    torch._dynamo.reset()
    f, graphs = compiled(entry, model)
    random.seed(1)
    sizes = [*FIRST, *((random.choice(BATCHES), random.choice(LENGTHS)) for _ in range(count))]
    worst, begin, refused = 0.0, time.perf_counter(), list[str]()
    for batch, length in sizes[:count]:
        tokens = torch.randint(0, 32_000, (batch, length))
        with torch.no_grad():
            try:
                wanted = model(input_ids=tokens)
            except Exception as error:
                refused.append(f"{batch}x{length}: {type(error).__name__}")
                continue
            worst = max(worst, difference(f(input_ids=tokens), wanted))
    seconds = round(time.perf_counter() - begin, 1)
    return {"graphs": graphs(), "error": float(f"{worst:.1e}"), "s": seconds, "refused": refused}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entry", nargs="*", choices=[*ENTRIES], default=[*ENTRIES])
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--sizes", type=int, default=40)
    parser.add_argument("--json", help="where to write all figures")
    given = parser.parse_args()
    model = decoder(given.width)
    rows = {e: measure(e, model, given.sizes) for e in given.entry}
    cells = [[ENTRIES[e], *(str(r[k]) for k in ("graphs", "error", "s"))] for e, r in rows.items()]
    title = f"decoder of width {given.width} at {given.sizes} sizes"
    show(table(title, ["entry", "graphs", "error", "seconds"], cells))
    print("eager refuses:", *{r for row in rows.values() for r in row["refused"]})
    if given.json:
        write_json({"machine": machine(on_cpu=True), "entries": rows}, given.json)


if __name__ == "__main__":
    main()
