"""Bytes kept for backward against the time of a step: `python -m bench.memory [--only NAMES]`.

For each budget (torch._functorch.config.activation_memory_budget: 1 keeps what makes backward
fastest, 0 as little as can be), Inductor and weft each have a process of their own; rounds take
turns. Steps are those of bench/train.py, forward and backward through torch.compile.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.steps import STEPS
from bench.train import BUDGET, ROLE, timed
from weft.cli.output import milliseconds, show, table, write_json
from weft.cli.suite_text import machine
from weft.runtime.child import Child

BACKENDS = ("inductor", "weft")
BUDGETS = (1.0, 0.75, 0.5, 0.25, 0.0)


def curve(name: str, logs: Path) -> dict[str, dict[str, Any]]:
    """By budget and backend ("0.5 weft"): bytes kept, and the median step in ms."""
    children = {
        f"{budget} {backend}": Child(
            "bench.train", logs / f"{name}{budget}{backend}", {ROLE: backend, BUDGET: str(budget)}
        )
        for budget in BUDGETS
        for backend in BACKENDS
    }
    rows = timed(children, name)
    for child in children.values():
        child.close()
    return rows


def shown(rows: dict[str, dict[str, Any]], budget: float) -> list[str]:
    cells = [f"{budget:.2f}"]
    for backend in BACKENDS:
        row = rows[f"{budget} {backend}"]
        cells += [f"{row['kept'] / 1e6:.2f}" if "kept" in row else "-", milliseconds(row["ms"])]
    return cells


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=["GPT-2", "Llama", "U-Net"])
    parser.add_argument("--json")
    chosen = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as logs:
        for name in (n for n in STEPS if any(word in n for word in chosen.only)):
            found[name] = curve(name, Path(logs))
            columns = ["budget", *(f"{b} {what}" for b in BACKENDS for what in ("MB", "ms"))]
            show(table(name, columns, [shown(found[name], budget) for budget in BUDGETS]))
            failed = ((b, row["failure"]) for b, row in found[name].items() if "failure" in row)
            show(*(f"{name}, {b}: {why}" for b, why in failed))
    if chosen.json is not None:
        write_json({"machine": machine(True), "steps": found}, chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
