"""`make demo`: five programs on this CPU, eager, Inductor and weft side by side, each checked.

python -m bench.demo
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from weft.cli.bench import Bench, Comparison
from weft.cli.output import error_text, milliseconds, show, show_error, table, working
from weft.cli.program import SourceSpec
from weft.core.errors import WeftError

BACKENDS = ("eager", "inductor", "weft")

PROGRAMS = {
    "RMSNorm(2048) of 1x32x2048": SourceSpec(text="torch.nn.RMSNorm(2048)(torch.randn(1,32,2048))"),
    "relu((x + b) @ w), 16x64x16": SourceSpec(
        text="torch.relu((torch.randn(16,64) + torch.randn(64)) @ torch.randn(64,16))"
    ),
    "softmax of 1x28x512x512": SourceSpec(
        text="torch.nn.Softmax(dim=-1)(torch.randn(1,28,512,512))"
    ),
    "MLP 512-2048-512, 64 rows": SourceSpec(
        text="nn.Sequential(nn.Linear(512,2048), nn.GELU(), nn.Linear(2048,512))"
        "(torch.randn(64,512))"
    ),
    "TinyLlama decoder layer, 128 tokens": SourceSpec(path=f"{Path(__file__)}:DecoderLayer"),
}


class DecoderLayer(nn.Module):
    """transformers' own Llama layer at the width of TinyLlama-1.1B, causal."""

    def __init__(self) -> None:
        super().__init__()
        config = LlamaConfig(
            hidden_size=2048,
            intermediate_size=5632,
            num_attention_heads=32,
            num_key_value_heads=4,
            attn_implementation="sdpa",
        )
        self.rotary = LlamaRotaryEmbedding(config)
        self.layer = LlamaDecoderLayer(config, layer_idx=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[1])[None]
        return self.layer(x, position_embeddings=self.rotary(x, positions))

    @staticmethod
    def example_inputs() -> torch.Tensor:
        return torch.randn(1, 128, 2048)


def row(name: str, comparison: Comparison) -> list[str]:
    found = comparison.measurements
    weft = found["weft"]
    return [
        name,
        *(milliseconds(found[backend].ms) for backend in BACKENDS),
        *(f"{ratio:.2f}" if ratio else "-" for ratio in ratios(comparison)),
        error_text(weft.verdict.error if weft.verdict else None),
        "-" if weft.kernels is None else str(weft.kernels),
        "-" if weft.kernels is None else str(len(weft.externs)),
        "ok" if weft.passed else "FAILED",
    ]


def ratios(comparison: Comparison) -> list[float | None]:
    return [comparison.ratio("weft"), comparison.ratio("weft", to="inductor")]


def main() -> int:
    columns = ["program", "eager ms", "inductor ms", "weft ms", "x eager", "x inductor",
               "relative error", "kernels", "externs", "check"]  # fmt: skip
    rows: list[list[str]] = []
    failures: list[str] = []
    with Bench(BACKENDS) as bench:
        for name, spec in PROGRAMS.items():
            print(f"{len(rows) + 1}/{len(PROGRAMS)} {name}", file=sys.stderr, flush=True)
            with working(name):
                comparison = bench.compare(spec)
            rows.append(row(name, comparison))
            failures += [
                f"{name}: {m.backend}: {m.failure}"
                for m in comparison.measurements.values()
                if m.failure
            ]
    where = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    show(table(f"milliseconds, interleaved; {where}", columns, rows))
    for failure in failures:
        show_error(WeftError(failure))
    return 0 if all(r[-1] == "ok" for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
