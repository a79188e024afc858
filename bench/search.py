"""What the search over algebra brings: `python -m bench.search`, the programs of search.toml.

python -m bench.search attention chain --json bench/results/search.json    # names with one of these
python -m bench.search --cost                  # seconds of the search in compiling the CPU suite
Each backend has a process of its own, and their rounds take turns. Beside the times: the elements
that sums fold, without the search and with it, and which results are those of float64 eager.
"""

import argparse
import io
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from weft.cli.bench import Bench
from weft.cli.compiling import compile_source
from weft.cli.output import milliseconds, show, table, write_json
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load
from weft.cli.suite_text import machine
from weft.cli.workloads import WORKLOADS, tomllib
from weft.options import Options
from weft.scalar.sizes import hint
from weft.tensor.ops import Reduce
from weft.text import parse_program

OFF, ON = "weft", "weft-searched"
PEERS = ("eager", "inductor", "inductor-frozen")
BACKENDS = (*PEERS, OFF, ON)
ROUNDS, SECONDS = 5, 0.1
SLOWER = 1.05  # times the time without the search


def folded(program: Source, search: Any) -> int:
    """The elements that all sums of a program fold: its multiply-adds, and its additions."""
    compiled = compile_source(program, replace(Options(), search=search))
    graph = parse_program(compiled.ir("tensor"))
    return sum(hint(n.args[0].type.size) for n in graph.nodes() if isinstance(n.op, Reduce))


def measured(bench: Bench, text: str) -> dict[str, Any]:
    """Milliseconds of each backend, whether all results are right, and what sums fold."""
    found = bench.compare(SourceSpec(text=text), ROUNDS, SECONDS).measurements
    program = load(SourceSpec(text=text))
    assert isinstance(program, Source)
    return {
        "ms": {b: found[b].ms for b in BACKENDS},
        "failures": {b: m.failure for b, m in found.items() if not m.passed},
        "folded": [folded(program, s) for s in ("off", "on")],
    }


def mean_ratio(rows: Mapping[str, Any], to: str) -> float | None:
    """How many times as fast as another backend, in the geometric mean over what both run."""
    times = [r["ms"] for r in rows.values() if r["ms"][ON] and r["ms"][to]]
    return geometric_mean([t[to] / t[ON] for t in times]) if times else None


def shown(name: str, row: Mapping[str, Any]) -> list[str]:
    ms, (before, after) = row["ms"], row["folded"]
    gain = f"{ms[OFF] / ms[ON]:.2f}" if ms[OFF] and ms[ON] else "-"
    times = (milliseconds(ms[b]) for b in BACKENDS)
    return [name, *times, gain, f"{before / max(1, after):.3g}", ", ".join(row["failures"]) or "ok"]


def cost(text: str) -> dict[str, float]:
    """Seconds that the search takes, and all of the compiler, with nothing in the cache."""
    program = load(SourceSpec(text=text))
    with tempfile.TemporaryDirectory() as cache, redirect_stdout(io.StringIO()) as out:
        os.environ["WEFT_CACHE"] = cache
        compiled = compile_source(program, replace(Options(), verbose=1, search="on"))  # type: ignore[arg-type]
    times = re.findall(r"n:003_search +([\d.]+) ms", out.getvalue())
    return {
        "search": sum(map(float, times)) / 1e3,
        "compile": sum(compiled.report.seconds.values()),
    }


def costs(names: list[str]) -> dict[str, Any]:
    """The search's share in compiling each workload, as a table."""
    rows = {name: cost(WORKLOADS[name].text) for name in names}
    ordered = sorted(rows.items(), key=lambda row: -row[1]["search"])
    cells = [
        [n, f"{r['search']:.3f}", f"{r['compile']:.2f}", f"{r['search'] / r['compile']:.1%}"]
        for n, r in ordered
    ]
    show(table("seconds", ["workload", "search", "compile", "share"], cells))
    total, whole = (sum(r[k] for r in rows.values()) for k in ("search", "compile"))
    show(f"{total:.2f} of {whole:.1f} seconds: {total / whole:.1%}")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names or of groups; all without")
    parser.add_argument("--cost", action="store_true", help="compile the CPU suite, time nothing")
    parser.add_argument("--json")
    chosen = parser.parse_args()
    if chosen.cost:
        some = [n for n in WORKLOADS if not chosen.words or any(w in n for w in chosen.words)]
        write_json({"machine": machine(True), "costs": costs(some)}, chosen.json or os.devnull)
        return 0
    groups = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    texts = {n: text for group in groups.values() for n, text in group.items()}
    places = {n: f"{group} {n}" for group, some in groups.items() for n in some}
    names = [n for n in texts if not chosen.words or any(w in places[n] for w in chosen.words)]
    rows: dict[str, dict[str, Any]] = {}
    with Bench(BACKENDS) as bench:
        for name in names:
            print(name, file=sys.stderr, flush=True)
            rows[name] = measured(bench, texts[name])
    columns = ["program", *BACKENDS, "off / on", "folds less", "check"]
    show(table("milliseconds", columns, [shown(n, r) for n, r in rows.items()]))
    means = {b: mean_ratio(rows, b) for b in (*PEERS, OFF)}
    slower = [n for n, r in rows.items() if (r["ms"][ON] or 0) > SLOWER * (r["ms"][OFF] or 0)]
    show("times as fast: " + ", ".join(f"{m:.2f} {b}" for b, m in means.items() if m))
    show(f"slower by over 5% than without the search: {', '.join(slower) or 'none'}")
    if chosen.json is not None:
        write_json({"machine": machine(True), "means": means, "programs": rows}, chosen.json)
    return int(any(row["failures"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
