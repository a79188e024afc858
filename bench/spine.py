"""`python -m bench.spine [OUT.json]`: pointwise, reductions and matmul beside eager and Inductor.

Each backend runs in its own process, rounds interleaved, medians (weft/cli/bench.py). The JSON
holds machine and commit; ratios are what counts, for these machines are shared.
"""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import weft
from weft.cli.bench import Bench, Comparison
from weft.cli.output import milliseconds, show, table
from weft.cli.program import SourceSpec

BACKENDS = ("eager", "inductor", "weft")
CASES = {
    "add 4096x1024": "torch.randn(4096,1024) + torch.randn(4096,1024)",
    "GELU 4096x1024": "F.gelu(torch.randn(4096,1024))",
    "gated chain 2048x1024": "(lambda a, b: torch.sigmoid(a) * b + torch.tanh(b) * 0.5)"
    "(torch.randn(2048,1024), torch.randn(2048,1024))",
    "RMSNorm 2048x2048": "nn.RMSNorm(2048)(torch.randn(2048,2048))",
    "layer norm 4096x1024": "nn.LayerNorm(1024)(torch.randn(4096,1024))",
    "softmax 28x512x512": "nn.Softmax(dim=-1)(torch.randn(28,512,512))",
    "log-softmax 512x32000": "F.log_softmax(torch.randn(512,32000), 1)",
    "row sum 4096x1024": "torch.randn(4096,1024).sum(1)",
    "column sum 4096x1024": "torch.randn(4096,1024).sum(0)",
    "full sum 4096x1024": "torch.randn(4096,1024).sum()",
    "full max 4096x1024": "torch.randn(4096,1024).amax()",
    "argmax 4096x1024": "torch.randn(4096,1024).argmax(1)",
    "variance 4096x1024": "torch.randn(4096,1024).var(1)",
    "matmul 512": "torch.randn(512,512) @ torch.randn(512,512)",
    "matmul 1024": "torch.randn(1024,1024) @ torch.randn(1024,1024)",
    "linear 128x2048x5632": "nn.Linear(2048, 5632, bias=False)(torch.randn(128,2048))",
    "linear + GELU 128x768x3072": "nn.Sequential(nn.Linear(768,3072), nn.GELU())"
    "(torch.randn(128,768))",
    "GEMV 1x2048x5632": "nn.Linear(2048, 5632, bias=False)(torch.randn(1,2048))",
}


def call_overhead_us(calls: int = 20000) -> float:
    """A call of a compiled 16x16 program less its bare kernel, in microseconds: best of five."""
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    f = weft.compile(lambda a, b: torch.relu(a + b))
    f(x, y)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            f(x, y)
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    return best  # the kernel itself takes 0.03 us


def facts(comparison: Comparison) -> dict[str, Any]:
    found = comparison.measurements
    return {
        "ms": {b: m.ms for b, m in found.items()},
        "compile_seconds": {b: m.compile_seconds for b, m in found.items()},
        "error": found["weft"].verdict.error if found["weft"].verdict else None,
        "passed": found["weft"].passed,
        "over_eager": comparison.ratio("weft"),
        "over_inductor": comparison.ratio("weft", to="inductor"),
    }


def machine() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    cpu = Path("/proc/cpuinfo")
    model = cpu.read_text().split("model name")[1].splitlines()[0] if cpu.exists() else ""
    return {
        "commit": commit.stdout.strip(),
        "cpu": model.strip("\t: ") or platform.processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def main(out: str | None) -> int:
    results: dict[str, dict[str, Any]] = {}
    with Bench(BACKENDS) as bench:
        for number, (name, text) in enumerate(CASES.items(), 1):
            print(f"{number}/{len(CASES)} {name}", file=sys.stderr, flush=True)
            results[name] = facts(bench.compare(SourceSpec(text=text)))
    ratios = {k: [r[k] for r in results.values() if r[k]] for k in ("over_eager", "over_inductor")}
    means = {k: math.exp(sum(map(math.log, v)) / len(v)) for k, v in ratios.items() if v}
    summary = {"geomean": means, "call_us": call_overhead_us()}
    rows = [
        [name, *(milliseconds(r["ms"].get(b)) for b in BACKENDS)]
        + [f"{r[k]:.2f}" if r[k] else "-" for k in ratios]
        + ["ok" if r["passed"] else "FAILED"]
        for name, r in results.items()
    ]
    columns = ["program", *(f"{b} ms" for b in BACKENDS), "x eager", "x inductor", "check"]
    show(table("weft beside its peers", columns, rows))
    print(f"geomean {means}; one call of a 16x16 program {summary['call_us']:.2f} us")
    if out:
        record = {"machine": machine(), "summary": summary, "cases": results}
        Path(out).write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(r["passed"] for r in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
