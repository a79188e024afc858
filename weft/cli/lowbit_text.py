"""The results of `weft bench cpu --quantized` as tables, sentences and JSON.

show(*lowbit_tables(results))
write_json(lowbit_json(results), "result.json")
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from weft.cli.llama import version
from weft.cli.lowbit_bench import (
    BASE,
    BEST,
    EVERY,
    ONE,
    OURS,
    PREFILL_COPIES,
    WRONG,
    Cell,
    Results,
)
from weft.cli.lowbit_layer import PHASES, ROWS
from weft.cli.lowbit_peers import INT4, INT8
from weft.cli.output import error_text, milliseconds, number, table
from weft.cli.suite import DISTURBED
from weft.cli.suite_text import listed, machine
from weft.targets.cpu import host

LIMIT = "limit"
LLAMA = "llama.cpp"
# What issue 20 asks for: at least so much percent of the limit (of the peak of one thread), or so
# many times as fast as a backend; the last column of rows is weft on other weights.
GOALS: tuple[tuple[str, str, str, float], ...] = (
    ("int8", "decode", LIMIT, 70),
    ("int4", "decode", LIMIT, 50),
    (INT4, "decode", LIMIT, 80),
    *((row, "decode", BEST, 1.5) for row in ("int8", "int4", INT4)),
    ("int8", "decode", LLAMA, 1.0),
    (INT4, "decode", LLAMA, 1.3),
    ("int8", "decode", BASE, 1.0),
    (INT8, "decode", BASE, 1.0),
    ("int4", "decode", "int8", 1.0),
    (INT4, "decode", INT8, 1.0),
    (INT8, "prefill", ONE, 80),
    (INT8, "prefill", BEST, 1.15),
    *((row, "prefill", BASE, 1 / 1.05) for row in ("fp8", "int8", "int4")),
)


def lowbit_tables(results: Results) -> list[Any]:
    """A table for each phase, then goals, and a line for each backend or cell without a figure."""
    tables = [phase_table(results, phase) for phase in PHASES]
    return [
        *(t for t in tables if t),
        *machine_lines(results),
        *map(goal_line, goals(results)),
        *disturbed(results),
        *listed("no time was left for", results.not_begun),
        *(f"{backend} is left out: {why}" for backend, why in results.absent.items()),
        *(
            f"{row}, {phase}: {backend}: {cell.failure}"
            for (row, phase), cells in results.cells.items()
            for backend, cell in cells.items()
            if cell.failure
        ),
    ]


def phase_table(results: Results, phase: str) -> Any:
    rows = [row for row, at in results.cells if at == phase]
    if not rows:
        return None
    held = [cells for (_, at), cells in results.cells.items() if at == phase]
    used = [b for b in (*EVERY, BASE, ONE) if any(b in cells for cells in held)]
    limit = "% of read" if phase == "decode" else "% of peak"
    columns = ["weights", *used, "best peer", "x best", "x llama.cpp", "x bf16", limit, "error"]
    of = PHASES[phase]
    title = (
        f"{phase}: {of.rows} row{'s' * (of.rows > 1)}, {of.cached} cached; ms of a layer, medians "
        f"of {results.settings.rounds} interleaved rounds, {results.threads} threads"
    )
    return table(title, columns, [line(results, row, phase, used) for row in rows])


def line(results: Results, row: str, phase: str, used: Sequence[str]) -> list[str]:
    cells = results.cells[row, phase]
    return [
        row,
        *(shown(cells.get(backend, Cell())) for backend in used),
        results.best_peer(row, phase) or "-",
        *(number(results.ratio(row, phase, to), ".2f") for to in (BEST, LLAMA, BASE)),
        number(results.percent(row, phase), ".0f"),
        error_text(cells.get(OURS, Cell()).error),
    ]


def shown(cell: Cell) -> str:
    if cell.failure is None:
        return milliseconds(cell.ms)
    return "wrong" if cell.failure.startswith(WRONG) else "failed"


def machine_lines(results: Results) -> Iterator[str]:
    p, last = results.peaks, results.last_cache
    yield (
        f"machine: reads {p.read:.1f} GB/s; {p.int8:.0f} GOP/s of int8 by VNNI, "
        f"{p.int8_one_thread:.0f} on one thread; {p.bf16:.0f} GFLOP/s of bf16, {p.f32:.0f} of f32"
        + ("; tiles (AMX) are above these" if host().tiled else "")
    )
    counts = {row: results.settings.copies or n for row, n in results.copies.items()}
    told = ", ".join(f"{n} {row}" for row, n in counts.items())
    yield (
        f"layers in turn in decode: {told}; the last cache has {last / 1e6:.0f} MB; in prefill "
        f"{results.settings.copies or PREFILL_COPIES}"
    )
    few = [row for row, n in counts.items() if n * ROWS[row].bytes < last]
    yield from listed("weights of a round fit the last cache, and may come from it, in", few)


def goals(results: Results) -> Iterator[tuple[str, str, str, float, float | None]]:
    """Of rows that were measured: row, phase, what is compared, the goal, and what was found."""
    for row, phase, to, least in GOALS:
        if (row, phase) in results.cells:
            yield row, phase, to, least, figure(results, row, phase, to)


def figure(results: Results, row: str, phase: str, to: str) -> float | None:
    if to in (LIMIT, ONE):
        return results.percent(row, phase, ONE if to == ONE else OURS)
    mine = results.ratio(row, phase, BASE if to in ROWS else to)
    if to not in ROWS:
        return mine
    other = results.ratio(to, phase, BASE)  # of other rounds, so both are of the base's
    return mine / other if mine and other else None


def goal_line(goal: tuple[str, str, str, float, float | None]) -> str:
    row, phase, to, least, found = goal
    unit = "of the read bandwidth" if to == LIMIT else "of the peak of one thread"
    told = f"% {unit}" if to in (LIMIT, ONE) else f" times as fast as {to}"
    how = ".0f" if to in (LIMIT, ONE) else ".2f"
    state = "not measured" if found is None else "met" if found >= least else "missed"
    return f"{state:12}  {phase}, {row}: {number(found, how)}{told}, goal {format(least, how)}"


def disturbed(results: Results) -> list[str]:
    rows = [
        f"{row}, {phase}: {backend}"
        for (row, phase), cells in results.cells.items()
        for backend, c in cells.items()
        if c.rounds_ms and statistics.median(c.rounds_ms) > DISTURBED * min(c.rounds_ms)
    ]
    more = f"not a quiet machine: rounds differ by more than {(DISTURBED - 1) * 100:.0f}% for"
    return listed(more, rows)


def lowbit_json(results: Results) -> dict[str, Any]:
    settings = results.settings
    rows = [
        {
            "weights": row,
            "phase": phase,
            "bytes": ROWS[row].bytes,
            "best_peer": results.best_peer(row, phase),
            "times_as_fast_as": {to: results.ratio(row, phase, to) for to in (BEST, LLAMA, BASE)},
            "backends": {
                b: {**asdict(c), "percent_of_limit": results.percent(row, phase, b)}
                for b, c in cells.items()
            },
        }
        for (row, phase), cells in results.cells.items()
    ]
    names = ("weights", "phase", "to", "goal", "found")
    return {
        "machine": machine(on_cpu=True),
        "llama.cpp": version(settings.llama) if settings.llama else None,
        "threads": results.threads,
        "settings": {"seconds": settings.seconds, "rounds": settings.rounds},
        "peaks": asdict(results.peaks),
        "last_cache_bytes": results.last_cache,
        "layers_in_turn": {**results.copies, "prefill": PREFILL_COPIES},
        "left_out": dict(results.absent),
        "not_begun": list(results.not_begun),
        "disturbed": disturbed(results),
        "goals": [dict(zip(names, goal, strict=True)) for goal in goals(results)],
        "passed": results.passed,
        "rows": rows,
    }
