"""Seconds to compile against the size of a program: `python -m bench.compile_time`.

python -m bench.compile_time --only siblings --json bench/results/compile-time.json
Each row is a fresh process with an empty cache: capture, every level, the C compiler, one call,
checked against eager. Where the machine is shared, CPU seconds tell more than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import weft
from weft.cli.output import show, table
from weft.targets.cpu import cpu_facts

COLUMNS = {
    "program": "program", "n": "n", "wall_seconds": "wall s", "cpu_seconds": "CPU s",
    "compiler_cpu_seconds": "of it the C compiler", "kernels": "kernels",
    "functions": "C functions",
}  # fmt: skip
LIMIT = 20.0  # CPU seconds of the largest size of each
ERROR = 1e-4  # the largest difference to eager that passes: 48 layers in float32

Made = tuple[Callable[..., Any], torch.Tensor]


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Layer(nn.Module):
    """A decoder layer as Llama's: rotary positions, causal attention, a gated MLP."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.before, self.between = heads, Norm(width), Norm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        y = self.before(x)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (m(y).view(shape).transpose(1, 2) for m in (self.q, self.k, self.v))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(batch, length, width))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, layers: int, width: int = 256, heads: int = 4, words: int = 1000) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(words, width), Norm(width)
        self.layers = nn.ModuleList(Layer(width, heads, 688) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)
        rates = 10000 ** (-torch.arange(0, width // heads, 2) / (width // heads))
        angles = (torch.arange(64).float()[:, None] * rates[None]).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def siblings(n: int) -> Made:
    return lambda x: [x + i for i in range(n)], torch.randn(1024)


def chain(n: int) -> Made:
    def run(x: torch.Tensor) -> torch.Tensor:
        for i in range(n):
            x = torch.sin(x) if i % 2 else x + 0.5
        return x

    return run, torch.randn(1024)


def decoder(n: int) -> Made:
    return Decoder(n).eval(), torch.randint(0, 1000, (1, 64))


def lstm(n: int) -> Made:
    """Unrolled, as on a machine without oneDNN's own kernel: that would be one library call."""
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    return nn.LSTM(64, 64).eval(), torch.randn(n, 1, 64)


PROGRAMS: dict[str, tuple[Callable[[int], Made], tuple[int, ...]]] = {
    "siblings": (siblings, (10, 30, 100, 300, 1000)),
    "chain": (chain, (50, 500, 1500, 5000)),
    "decoder layers": (decoder, (4, 12, 24, 48)),
    "LSTM steps": (lstm, (32, 128, 256, 512)),
}


def cpu_seconds() -> tuple[float, float]:
    """Of this process, and of the compilers that it has run."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time(), children.ru_utime + children.ru_stime


def largest_difference(a: Any, b: Any) -> float:
    if isinstance(b, torch.Tensor):
        return float((a - b).abs().max())
    return max(largest_difference(x, y) for x, y in zip(a, b, strict=True))


def measure(name: str, n: int) -> dict[str, Any]:
    """One compilation and call, in this process, which has made none before."""
    torch.manual_seed(0)
    run, x = PROGRAMS[name][0](n)
    own, others = cpu_seconds()
    start = time.perf_counter()
    with torch.no_grad():
        compiled = weft.compile(run)
        got = compiled(x)
        wall = time.perf_counter() - start
        own_after, others_after = cpu_seconds()
        error = largest_difference(got, run(x))
    kernels = compiled.report.kernels
    return {
        "program": name, "n": n, "wall_seconds": round(wall, 2),
        "cpu_seconds": round(own_after - own + others_after - others, 2),
        "compiler_cpu_seconds": round(others_after - others, 2), "kernels": len(kernels),
        "functions": len({k.symbol for k in kernels}), "externs": len(compiled.report.externs),
        "stages": {stage: round(s, 2) for stage, s in compiled.report.seconds.items()},
        "error": error,
    }  # fmt: skip


def apart(name: str, n: int) -> dict[str, Any]:
    """The same in a process of its own, whose cache is empty."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "bench.compile_time", "--one", name, str(n)]
        environment = {**os.environ, "WEFT_CACHE": cache}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} {n}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def machine() -> dict[str, Any]:
    commit = ["git", "describe", "--always", "--dirty"]
    text = subprocess.run(commit, capture_output=True, text=True).stdout.strip()
    return {
        "machine": cpu_facts().get("model name", platform.processor()),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
        "commit": text,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compile_time", description=__doc__)
    parser.add_argument("--only", choices=PROGRAMS)
    parser.add_argument("--json", type=Path, help="write the rows, the machine and the commit here")
    parser.add_argument("--one", nargs=2, metavar=("PROGRAM", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return 0
    facts, rows, passed = machine(), list[dict[str, Any]](), True
    for name in [options.only] if options.only else PROGRAMS:
        for n in PROGRAMS[name][1]:
            print(f"{name} {n}", file=sys.stderr, flush=True)
            rows.append(apart(name, n))
        passed &= rows[-1]["cpu_seconds"] < LIMIT and rows[-1]["error"] < ERROR
    where = f"{facts['machine']}, {facts['processors']} processors, load {facts['load']}"
    cells = [[str(row[key]) for key in COLUMNS] for row in rows]
    show(table(f"cold compile time; {where}", list(COLUMNS.values()), cells))
    if options.json:
        options.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
