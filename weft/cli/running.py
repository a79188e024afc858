"""`weft run`: runs and checks a program; makes tables and JSON of its run, or of several backends.

rows = run_once(load(spec), Options(), seed=0)
all(row.verdict.passed for row in rows.outputs)
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Group
from torch.utils import _pytree as pytree

from weft import Report
from weft.cli.bench import Comparison, Measurement, expected
from weft.cli.check import Verdict, call, check, check_text
from weft.cli.compiling import Compiled, compile_ir, compile_source, text_as_source
from weft.cli.output import error_text, microseconds, milliseconds, number, table, working
from weft.cli.program import IrText, Source
from weft.core.errors import WeftError
from weft.library.calls import TORCH_DTYPES
from weft.options import Options, find_target
from weft.runtime.nvidia import nvrtc
from weft.runtime.report import KernelReport

ROWS = 16  # outputs that a table shows
SHORT = {dtype: name for name, dtype in TORCH_DTYPES.items()}


@dataclass(frozen=True)
class Output:
    kind: str  # f32[16,16]
    norm: float | None
    verdict: Verdict


@dataclass(frozen=True)
class Outcome:
    compiled: Compiled
    outputs: list[Output]
    reference: str

    @property
    def passed(self) -> bool:
        return all(o.verdict.passed for o in self.outputs)


def run_once(program: Source | IrText, options: Options, seed: int) -> Outcome:
    """Compiles, runs and checks: PyTorch against float64 eager, IR text against its interpreter."""
    if isinstance(program, IrText):
        return run_text(program, options, seed)
    with working("running eager"):
        truth = expected(program)
    with working("compiling"):
        compiled = compile_source(program, options)
    with working("running"):
        out = call(program, compiled)
    verdicts = check(out, *truth)
    return Outcome(compiled, rows(out, verdicts), "float64 eager")


def run_text(program: IrText, options: Options, seed: int) -> Outcome:
    with working("compiling"):
        compiled = compile_ir(program, options)
    source = text_as_source(program, compiled, seed)
    with working("running"):
        out = call(source, compiled)
    with working("interpreting"):
        truth = call(source, compiled.interpret)
    return Outcome(compiled, rows(out, check_text(out, truth)), "the interpreter")


def rows(out: Any, verdicts: list[Verdict]) -> list[Output]:
    leaves = pytree.tree_leaves(out)
    if len(leaves) != len(verdicts):  # the structure differs from eager's: there is one verdict
        return [Output("outputs", None, verdict) for verdict in verdicts]
    return [Output(kind(o), norm(o), v) for o, v in zip(leaves, verdicts, strict=True)]


def kind(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{SHORT.get(value.dtype, value.dtype)}[{','.join(map(str, value.shape))}]"


def norm(value: Any) -> float | None:
    if not isinstance(value, torch.Tensor) or not value.numel():
        return None
    wide = torch.complex128 if value.is_complex() else torch.float64
    return float(value.detach().to(wide).norm())


def outcome_table(title: str, outcome: Outcome) -> Group:
    shown = outcome.outputs[:ROWS]
    cells = [
        [o.kind, number(o.norm, ".9g"), error_text(o.verdict.error), error_text(o.verdict.limit),
         "ok" if o.verdict.passed else "FAILED", o.verdict.reason]
        for o in shown
    ]  # fmt: skip
    return table(title, ["output", "norm", "relative error", "limit", "check", ""], cells)


def outcome_line(outcome: Outcome) -> str:
    count = len(outcome.outputs)
    missed = sum(not o.verdict.passed for o in outcome.outputs)
    verdict = f"{missed} of {count} FAILED" if missed else "passed"
    more = f" ({count - ROWS} more not shown)" if count > ROWS else ""
    report = outcome.compiled.report
    lines = [f"{count} output{'s' * (count != 1)} against {outcome.reference}: {verdict}{more}"]
    lines += [f"{op} ran as ATen's: {reason}" for op, reason, _ in report.externs]
    lines += [f"in eager: {reason}" for reason in report.reasons]
    return "\n".join(lines)


def outcome_json(title: str, outcome: Outcome) -> dict[str, Any]:
    return {
        "source": title,
        "passed": outcome.passed,
        "reference": outcome.reference,
        "outputs": [
            {"type": o.kind, "norm": o.norm, **verdict_json(o.verdict)} for o in outcome.outputs
        ],
        "report": report_json(outcome.compiled),
    }


def verdict_json(verdict: Verdict | None) -> dict[str, Any]:
    facts = asdict(verdict) if verdict else {"error": None, "limit": None, "reason": ""}
    return {**facts, "passed": verdict.passed if verdict else None}


def measurement_json(found: Measurement) -> dict[str, Any]:
    facts = {**asdict(found), **verdict_json(found.verdict)}
    del facts["verdict"]
    return facts


REPORTED = ("name", "rows", "predicted_us", "measured_us", "flops", "bytes")


def report_json(compiled: Compiled) -> dict[str, Any]:
    report = compiled.report
    return {
        "kernels": [
            {n: getattr(k, n) for n in REPORTED}
            | ({**asdict(k.launch), "percent_of_peak": k.percent_of_peak} if k.launch else {})
            for k in report.kernels
        ],
        "externs": [
            {"op": op, "reason": reason, "where": where, "measured_us": measured}
            for (op, reason, where), measured in timed_externs(report)
        ],
        "distinct_kernels": report.distinct,
        "reasons": report.reasons,
        "arena_bytes": report.arena_bytes,
        "cached": report.cached,
        "seconds": dict(report.seconds),
    }


def timed_externs(report: Report) -> list[tuple[tuple[str, str, str], float | None]]:
    times = report.extern_us or [None] * len(report.externs)
    return list(zip(report.externs, times, strict=True))


def require_stats(target: str) -> None:
    """WeftError if registers and spills of kernels for a target are unknown (all but CUDA).

    CompilerError if there is no NVRTC. This is checked before anything is compiled.
    """
    language = getattr(find_target(target), "language", "C")
    if language != "cuda":
        raise WeftError(
            f"--stats is for CUDA targets, such as --target cuda:sm_90a: for {target} weft makes "
            f"{language}, and registers and spills are a later compiler's"
        )
    nvrtc()


def report_tables(title: str, compiled: Compiled, foretold: bool = False) -> list[Group | str]:
    """The summary of `weft compile` and `weft run --profile`.

    With `foretold` it has no columns of measurements.
    """
    report = compiled.report
    on_gpu = any(k.launch is not None for k in report.kernels)
    columns = ["", "kernel", "predicted µs", "measured µs", *(LAUNCH_COLUMNS * on_gpu)]
    kernels = [
        [str(i), titled(k), microseconds(k.predicted_us), microseconds(k.measured_us),
         *(launch_cells(k) * on_gpu)]
        for i, k in enumerate(report.kernels)
    ]  # fmt: skip
    if foretold:
        columns, *kernels = ([*row[:3], *row[4:-1]] for row in (columns, *kernels))
    parts: list[Group | str] = [table(title, columns, kernels)]
    if report.externs:
        externs = [
            [op, microseconds(measured), reason, where]
            for (op, reason, where), measured in timed_externs(report)
        ]
        parts.append(table("externs", ["op", "measured µs", "reason", "where"], externs))
    parts += [f"in eager: {reason}" for reason in report.reasons]
    stages = [[stage, f"{seconds:.3f}"] for stage, seconds in report.seconds.items()]
    stages.append(["total", f"{sum(report.seconds.values()):.3f}"])
    how = "read from the cache" if report.cached else "compiled"
    count = f"{len(report.kernels)} kernels, {report.distinct} of them distinct"
    title = f"{how}: {count}; {report.arena_bytes} bytes of arena"
    parts.append(table(title, ["stage", "s"], stages))
    return parts


def titled(kernel: KernelReport) -> str:
    return kernel.name + (f" ({kernel.rows} rows)" if kernel.rows > 1 else "")


LAUNCH_COLUMNS = (
    "grid", "block", "shared B", "registers", "spilt B", "occupancy %", "MB", "% of peak GB/s",
)  # fmt: skip


def launch_cells(kernel: KernelReport) -> list[str]:
    found = kernel.launch
    if found is None:
        return ["-"] * len(LAUNCH_COLUMNS)
    counts = (found.grid, found.block, found.shared_bytes, found.registers, found.spill_bytes)
    full = None if found.occupancy is None else 100 * found.occupancy
    shares = (full, kernel.bytes / 1e6, kernel.percent_of_peak)
    return [*(number(count, "d") for count in counts), *map(number, shares)]


# The columns of the comparison, and the text of a cell.
CELLS: dict[str, Callable[[Measurement, Comparison], str]] = {
    "backend": lambda m, _: m.backend,
    "ms": lambda m, _: milliseconds(m.ms),
    "x eager": lambda m, others: number(others.ratio(m.backend), ".2f"),
    "x inductor": lambda m, others: number(others.ratio(m.backend, "inductor"), ".2f"),
    "relative error": lambda m, _: error_text(m.verdict.error if m.verdict else None),
    "limit": lambda m, _: error_text(m.verdict.limit if m.verdict else None),
    "compile s": lambda m, _: number(m.compile_seconds, ".2f"),
    "kernels": lambda m, _: number(m.kernels, "d"),
    "externs": lambda m, _: "-" if m.kernels is None else str(len(m.externs)),
    "check": lambda m, _: "ok" if m.passed else "FAILED",
    "": lambda m, _: m.failure or (m.verdict.reason if m.verdict else ""),
}


def cells(comparison: Comparison, backend: str, columns: Iterable[str]) -> list[str]:
    return [CELLS[c](comparison.measurements[backend], comparison) for c in columns]


def comparison_table(comparison: Comparison) -> Group:
    columns = [column for column in CELLS if column != "x inductor"]
    rows = [cells(comparison, backend, columns) for backend in comparison.measurements]
    return table(comparison.title, columns, rows)


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    rows = comparison.measurements.values()
    return {
        "source": comparison.title,
        "passed": all(m.passed for m in rows),
        "backends": [
            {**measurement_json(m), "ratio_to_eager": comparison.ratio(m.backend)} for m in rows
        ],
    }
