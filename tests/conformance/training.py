"""Runs all of optim_db, module_db and hop_db by the backend: python -m tests.conformance.training.

What fails runs through Inductor as well: only what Inductor passes counts. Ends with 1 if any does.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance import higher_order, modules, optimisers

KINDS: dict[str, Any] = {"optimisers": optimisers, "modules": modules, "hops": higher_order}
OPTIONS = {"random": "eager"}  # so that dropout is eager's


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.training")
    results = Path(tempfile.gettempdir()) / "weft-training.jsonl"
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--only", default="", help="names that hold one of these, by commas")
    parser.add_argument("--results", type=Path, default=results, help=f"JSON lines ({results})")
    return parser.parse_args()


def judged(run: Callable[..., str], case: Any) -> tuple[str, str]:
    """What is wrong with weft's run, and what with Inductor's where it is."""
    ours = run(case, "weft", OPTIONS)
    return ours, run(case, "inductor") if ours and not ours.startswith("skip") else ""


def main() -> int:
    given, bad = options(), 0
    known = given.results.read_text().splitlines() if given.results.exists() else []
    done: dict[str, list[str]] = {name: found for name, *found in map(json.loads, known)}
    with given.results.open("a") as out:
        for kind in given.kinds.split(","):
            for name, case in KINDS[kind].cases().items():
                if not any(word in name for word in given.only.split(",")):
                    continue
                if name not in done:
                    done[name] = [*judged(KINDS[kind].run, case)]
                    print(json.dumps([name, *done[name]]), file=out, flush=True)
                ours, other = done[name]
                if ours and not ours.startswith("skip"):
                    print(f"{name}: {ours}\n  inductor: {other or 'right'}", flush=True)
                    bad += not other
    print(f"{len(done)} cases, {bad} that fail where Inductor does not")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
