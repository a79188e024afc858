"""`weft tune` on the CPU suite: `python -m bench.tuned`, each workload tuned, then timed both ways.

python -m bench.tuned softmax norm --seconds 20 --json tuned.json   # names that have one of these
Each workload is searched for so many seconds, with a database of its own; then two processes take
turns, one with what was found and one without, on torch's own threads.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import geometric_mean
from typing import Any

from weft.cli.bench import Bench
from weft.cli.output import show, table, write_json
from weft.cli.program import SourceSpec
from weft.cli.suite_text import machine
from weft.cli.workloads import WORKLOADS

BACKENDS = ("weft-untuned", "weft")
ROUNDS, SECONDS = 7, 0.1


def measured(name: str, seconds: float) -> dict[str, Any]:
    """Milliseconds with and without tuning, what was decided, and seconds that the search took."""
    text = WORKLOADS[name].text
    with tempfile.TemporaryDirectory(prefix="weft-tuned-") as cache:
        options = ("--seconds", str(seconds), "--json")
        command = [sys.executable, "-m", "weft", "tune", "-c", text, *options]
        environment, start = {**os.environ, "WEFT_CACHE": cache}, time.monotonic()
        made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        spent, rows = time.monotonic() - start, json.loads(made.stdout)
        with Bench(BACKENDS, environment=lambda backend: {"WEFT_CACHE": cache}) as bench:
            found = bench.compare(SourceSpec(text), ROUNDS, SECONDS).measurements
    facts = {"ms": {b: found[b].ms for b in BACKENDS}, "seconds": spent}
    facts["passed"] = all(found[b].passed for b in BACKENDS)
    facts["decisions"] = {r["kernel"]: r["decisions"] for r in rows if r["decisions"]}
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names; all without")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a search")
    parser.add_argument("--minutes", type=float, help="begin no workload after that long")
    parser.add_argument("--json")
    chosen = parser.parse_args()
    names = [n for n in WORKLOADS if not chosen.words or any(w in n for w in chosen.words)]
    found: dict[str, dict[str, Any]] = {}
    start = time.monotonic()
    for name in names:
        if chosen.minutes is not None and time.monotonic() - start > 60 * chosen.minutes:
            break
        facts = found[name] = measured(name, chosen.seconds)
        facts["ratio"] = facts["ms"]["weft"] / facts["ms"]["weft-untuned"]
        print(f"{name}: {facts['ratio']:.2f} {facts['decisions']}", file=sys.stderr, flush=True)
    ratios = {name: facts["ratio"] for name, facts in found.items()}
    rows = [[name, f"{ratio:.2f}", str(found[name]["decisions"])] for name, ratio in ratios.items()]
    mean = geometric_mean(ratios.values())
    slower = sum(ratio > 1.05 for ratio in ratios.values())
    show(table("", ["workload", "tuned / default", "decisions"], rows))
    show(f"{len(ratios)} of {len(names)} workloads: {mean:.3f} of the time; {slower} over 1.05")
    if chosen.json is not None:
        write_json({"machine": machine(True), "mean": mean, "workloads": found}, chosen.json)


if __name__ == "__main__":
    main()
