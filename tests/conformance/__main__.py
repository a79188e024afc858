"""Runs OpInfo's operators through both entries: `make conformance`, python -m tests.conformance.

Every operator runs in a process that may be lost, with a time limit. Results are kept line by
line, so that an interrupted run goes on where it was. Ends with 1 if anything is wrong or raises.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.conformance.cases import DTYPES, ENTRIES, operators
from tests.conformance.workers import Plan, Row, run_all, work


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    results = Path(tempfile.gettempdir()) / "weft-conformance.jsonl"
    add = parser.add_argument
    add("--ops", default="", help="only operators whose name holds one of these, by commas")
    add("--dtypes", default=",".join(DTYPES))
    add("--entries", default=",".join(ENTRIES))
    add("--samples", type=int, default=0, help="of each operator and dtype; 0 (default): all")
    add("--jobs", type=int, default=2)
    add("--results", type=Path, default=results, help=f"lines of JSON ({results})")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    given = options()
    plan = Plan(given.dtypes.split(","), given.entries.split(","), given.samples)
    if given.worker:
        work(plan)
        return 0
    words = given.ops.split(",") if given.ops else [""]
    names = [name for name in operators() if any(word in name for word in words)]
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    rows: list[Row] = [json.loads(line) for line in lines]
    known = Counter(row["op"] for row in rows if row["dtype"] in plan.dtypes)
    console = Console()
    with given.results.open("a") as out:

        def keep(row: Row) -> None:
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
            for number, entry, problem in row["bad"]:
                line = f"{row['op']} {row['dtype']} sample {number} {entry}: {problem}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)

        waiting = [name for name in names if known[name] < len(plan.dtypes)]
        run_all(waiting, plan, given.jobs, keep)
    return report([row for row in rows if row["op"] in names], console)


def report(rows: list[Row], console: Console) -> int:
    """A table by dtype; 1 if anything is wrong."""
    words = ("right", "rounding", "skip", "wrong", "error")
    table = Table("dtype", "operators", *words, box=None)
    total: Counter[str] = Counter()
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        counts: Counter[str] = Counter()
        mine = [row for row in rows if row["dtype"] == dtype and row["counts"]]
        for row in mine:
            counts.update(row["counts"])
        total.update(counts)
        table.add_row(dtype, str(len(mine)), *(str(counts[word]) for word in words))
    console.print(table)
    return int(total["wrong"] + total["error"] > 0)


if __name__ == "__main__":
    sys.exit(main())
