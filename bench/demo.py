"""`make demo`: five programs on this CPU, eager, Inductor and weft side by side, each checked.

python -m bench.demo
"""

import platform
import sys

import torch

from weft.cli.bench import Bench
from weft.cli.output import milliseconds, show, show_error, table, working
from weft.cli.program import SourceSpec
from weft.cli.running import cells
from weft.cli.workloads import WORKLOADS
from weft.core.errors import WeftError

BACKENDS = ("eager", "inductor", "weft")
COLUMNS = ("x eager", "x inductor", "relative error", "kernels", "externs", "check")  # of weft

PROGRAMS = {
    "RMSNorm(2048) of 1x32x2048": "torch.nn.RMSNorm(2048)(torch.randn(1,32,2048))",
    "relu((x + b) @ w), 16x64x16": "torch.relu((torch.randn(16,64) + torch.randn(64)) "
    "@ torch.randn(64,16))",
    "softmax of 1x28x512x512": "torch.nn.Softmax(dim=-1)(torch.randn(1,28,512,512))",
    "MLP 512-2048-512, 64 rows": WORKLOADS["MLP 64x512-2048-512"].text,
    # transformers' own Llama layer at the width of TinyLlama-1.1B, causal
    "TinyLlama decoder layer, 128 tokens": WORKLOADS["TinyLlama decoder layer, 128 tokens"].text,
}


def main() -> int:
    rows: list[list[str]] = []
    failures: list[str] = []
    with Bench(BACKENDS) as bench:
        for name, text in PROGRAMS.items():
            print(f"{len(rows) + 1}/{len(PROGRAMS)} {name}", file=sys.stderr, flush=True)
            with working(name):
                comparison = bench.compare(SourceSpec(text=text))
            found = comparison.measurements
            times = [milliseconds(found[backend].ms) for backend in BACKENDS]
            rows.append([name, *times, *cells(comparison, "weft", COLUMNS)])
            failures += [f"{name}: {m.backend}: {m.failure}" for m in found.values() if m.failure]
    where = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    columns = ["program", *(f"{backend} ms" for backend in BACKENDS), *COLUMNS]
    show(table(f"milliseconds, interleaved; {where}", columns, rows))
    for failure in failures:
        show_error(WeftError(failure))
    return 0 if all(row[-1] == "ok" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
