"""Forms that no suite has, beside eager and Inductor: `python -m bench.sweep`, on one thread.

python -m bench.sweep conv pool --inductor --json sweep.json    # whose names have one of the words
A ratio to eager under 0.8 is a cliff; so are an error and other values. The best of five rounds in
turn, in one process: weft runs on torch's own threads.
"""

import argparse
import sys
from functools import partial
from itertools import starmap
from statistics import geometric_mean
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

import weft
from bench.forms import GRAD, Graded, forms
from weft.cli.habits import seconds
from weft.cli.output import show, table, write_json
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load
from weft.cli.suite_text import machine
from weft.tune.worker import differ

ROUNDS, SECONDS, CLIFF = 5, 0.015, 0.8


def measure(text: str, graded: bool, inductor: bool) -> dict[str, Any]:
    """Microseconds by backend, what differs from eager, and what ran as ATen's; or an error."""
    torch.compiler.reset()
    source = load(SourceSpec(text))
    assert isinstance(source, Source)
    function, args = source.callable, source.args
    run = partial(partial, Graded(function, args)) if graded else partial
    compiled = weft.compile(function)
    backends = {"eager": function, "weft": compiled}
    if inductor:
        backends["inductor"] = torch.compile(function)
    runs = {name: run(f, *args) for name, f in backends.items()}
    with torch.set_grad_enabled(graded):
        try:
            made = {name: tree_leaves(one()) for name, one in runs.items()}
            pairs = zip(made["eager"], made["weft"], strict=True)
            wrong = next(filter(None, starmap(differ, pairs)), "")
        except Exception as error:  # of weft, Dynamo or Inductor: it is what is looked for
            return {"error": f"{type(error).__name__}: {error}"}
        calls = max(1, int(SECONDS / max(seconds(one, 2) for one in runs.values())))
        rounds = [[seconds(one, calls) for one in runs.values()] for _ in range(ROUNDS)]
    best = [min(times) * 1e6 for times in zip(*rounds, strict=True)]
    row: dict[str, Any] = {f"{name}_us": us for name, us in zip(runs, best, strict=True)}
    report = weft.report(compiled)
    externs = [*dict.fromkeys(op for op, _, _ in report.externs), *report.reasons]
    return {**row, "ratio": best[0] / best[1], "differs": wrong, "externs": externs}


def cells(name: str, row: dict[str, Any], columns: list[str]) -> list[str]:
    if "error" in row:
        return [name, *[""] * (len(columns) + 1), "ERROR", row["error"][:60]]
    times = [f"{row[column]:.1f}" for column in columns]
    word = "DIFFERS" if row["differs"] else "CLIFF" if row["ratio"] < CLIFF else ""
    return [name, *times, f"{row['ratio']:.2f}", word, " ".join(row["externs"])[:40]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", default=[""])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--inductor", action="store_true", help="beside it as well")
    parser.add_argument("--json", help="where to write all figures")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows: dict[str, dict[str, Any]] = {}
    for name, text in forms().items():
        if any(word in name for word in given.words):
            print(f"\r{len(rows) + 1} {name:<60}", end="", file=sys.stderr, flush=True)
            rows[name] = measure(text, name.startswith(GRAD), given.inductor)
    print(file=sys.stderr)
    columns = ["eager_us", "weft_us", *["inductor_us"] * given.inductor]
    titles = ["program", *(c.replace("_", " ") for c in columns), "ratio", "", "in ATen"]
    title = f"{len(rows)} programs, {given.threads} threads"
    show(table(title, titles, [cells(*pair, columns) for pair in rows.items()]))
    ratios = [row["ratio"] for row in rows.values() if "error" not in row]
    below = sum(ratio < CLIFF for ratio in ratios)
    mean = geometric_mean(ratios) if ratios else 0.0
    print(f"{mean:.2f} of eager's speed (geomean); {below} below {CLIFF}")
    if given.json:
        facts = {"machine": machine(on_cpu=True), "threads": given.threads, "programs": rows}
        write_json(facts, given.json)


if __name__ == "__main__":
    main()
