"""The results of `weft bench cpu|cuda` as a table, as sentences and as JSON.

show(suite_table(results), *summary_lines(results))
write_json(suite_json(results), "result.json")
"""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Group

from weft.cli.hot_calls import GOALS, TITLES
from weft.cli.limits import Limits
from weft.cli.output import error_text, milliseconds, number, table
from weft.cli.running import measurement_json
from weft.cli.suite import BEST, DISTURBED, OURS, Results, Row, trouble
from weft.config import config
from weft.runtime import nvidia
from weft.runtime.toolchain import open_toolchain
from weft.targets.cpu import cpu_facts

PACKAGES = (
    *("torch", "openvino", "onnxruntime", "onnx", "onnxscript", "transformers", "numpy"),
    *("triton", "cuda-bindings", "torchao", "nncf", "gguf"),
)
COMPILE_SHARE = 0.5


def suite_table(results: Results) -> Group:
    columns = ["workload", *(f"{b} ms" for b in results.backends), "best peer", "x best",
               "x eager", "x inductor", "% of limit", "error", "check"]  # fmt: skip
    where = f"{results.threads} threads" if results.on_cpu else "caches cold"
    title = f"milliseconds, medians of interleaved rounds; {where}"
    return table(title, columns, [cells(results, row) for row in results.rows])


def cells(results: Results, row: Row) -> list[str]:
    verdict = row.of("weft").verdict
    return [
        row.name,
        *(milliseconds(row.ms(b)) for b in results.backends),
        row.best_peer or "-",
        *(number(row.ratio("weft", to), ".2f") for to in (BEST, "eager", "inductor")),
        number(results.percent(row, "weft"), ".0f"),
        error_text(verdict.error if verdict else None),
        "ok" if row.passed else "FAILED",
    ]


def summary_lines(results: Results) -> list[str]:
    lines = [limits_line(results.limits, results.on_cpu)]
    for ours in results.ours:
        means = [f"{number(results.geomean(ours, to))} {to}" for to in (*results.peers, BEST)]
        lines.append(f"{ours}, times as fast (geometric mean): {', '.join(means)}")
        for to, least in ((BEST, results.settings.suite.enough), ("eager", 1.0), ("inductor", 1.0)):
            lines += listed(f"  below {least:g} of {to} on", results.behind(ours, to, least))
    lines += any_size_lines(results)
    seconds = [f"{number(results.compile_seconds(b), '.2g')} {b}" for b in results.backends]
    lines.append(f"seconds to compile and call once, cold (median): {', '.join(seconds)}")
    slow = results.slow_to_compile("weft", "inductor", COMPILE_SHARE)
    return [
        *lines,
        *listed(f"  weft above {COMPILE_SHARE:g} of inductor on", slow),
        *listed("a call needs more memory than eager's on", results.hungry("weft", "eager")),
        *habit_lines(results),
        *hot_call_lines(results),
        f"rank correlation of predicted and measured time: {number(results.rank_correlation)}",
        *disturbed_lines(results),
        *listed("no time was left for", results.not_begun),
        *(f"{backend} is left out: {why}" for backend, why in results.missing.items()),
        *failures(results),
    ]


def any_size_lines(results: Results) -> list[str]:
    """Programs for any size beside those for one, and beside Inductor's for any size."""
    ours, static, goal = "weft-dynamic", "weft", 0.8
    if not {ours, static} <= {*results.backends}:
        return []
    mean, seconds = results.geomean(ours, static), map(results.compile_seconds, (ours, static))
    slower = " and ".join(number(s, ".2g") for s in seconds)
    lines = [f"{ours}, times as fast as {static}: {number(mean)}; seconds to compile {slower}"]
    return [*lines, *listed(f"  below {goal:g} on", results.behind(ours, static, goal))]


def hot_call_lines(results: Results) -> list[str]:
    """A line for each kind of call, with every backend's microseconds and weft's ratios to them."""
    calls, lines = results.hot_calls, list[str]()
    for name, title in TITLES.items() if calls else ():
        times = {backend: getattr(found, name) for backend, found in calls.items()}
        shown = ", ".join(f"{us:.2f} {backend}" for backend, us in times.items())
        goal = f" (goal {GOALS[name]:g})" if name in GOALS else ""
        lines.append(f"{title}, us a call: {shown}{goal}")
        others = [b for b in times if b not in OURS]
        lines += [
            f"  {ours} takes {', '.join(f'{times[ours] / times[b]:.2f} of {b}' for b in others)}"
            for ours in results.ours
            if ours in times and others
        ]
    shares = ", ".join(f"{found.alternating_share:.2f} {b}" for b, found in calls.items())
    return [*lines, *([f"  in turn, of each by itself: {shares}"] if calls else [])]


def listed(what: str, names: Sequence[str]) -> list[str]:
    return [f"{what} {len(names)}: {'; '.join(names)}"] if names else []


def disturbed_lines(results: Results) -> list[str]:
    if not results.disturbed:
        return []
    return [
        f"not a quiet machine: rounds of {len(results.disturbed)} workloads of "
        f"{len(results.rows)} differ by more than {(DISTURBED - 1) * 100:.0f}%"
    ]


def limits_line(limits: Limits, on_cpu: bool) -> str:
    copy = ", ".join(
        f"{rate:.0f} of {size / 2**20:g} MB" for size, rate in limits.copy_gb_per_s.items()
    )
    if not on_cpu:
        rates = f"cuBLAS {limits.gflops:.0f} GFLOP/s in f32, {limits.bf16_gflops:.0f} in bf16"
        return f"device: {rates}; copies in GB/s {copy}"
    return (
        f"machine: {limits.gflops_one_thread:.0f} GFLOP/s on one thread, {limits.gflops:.0f} on "
        f"{limits.threads} (bf16 {limits.bf16_gflops_one_thread:.0f}, {limits.bf16_gflops:.0f}); "
        f"copies in GB/s {copy}"
    )


def habit_lines(results: Results) -> list[str]:
    h = results.habits
    if h is None:
        return []
    return [
        f"a call of 16x16: {h.call_us:.2f} us, an empty one of C {h.native_us:.2f}",
        f"a product of 768: {h.one_thread_ms:.2f} ms on one thread, {h.threads_ms:.2f} on "
        f"{results.threads}; eager's exp of 2 M: {h.eager_ms:.2f} ms alone, "
        f"{h.eager_between_ms:.2f} between such products",
    ]


def failures(results: Results) -> list[str]:
    return [
        f"{row.name}: {found.backend}: {why}"
        for row in results.rows
        for found in row.measurements.values()
        if (why := trouble(found)) is not None
    ]


def suite_json(results: Results) -> dict[str, Any]:
    ends = (*results.peers, BEST)
    enough = results.settings.suite.enough
    return {
        "machine": machine(results.on_cpu),
        "device": results.settings.device,
        "threads": results.threads,
        "settings": {"seconds": results.settings.seconds, "rounds": results.settings.rounds},
        "limits": asdict(results.limits),
        "left_out": dict(results.missing),
        "geomean": {o: {to: results.geomean(o, to) for to in ends} for o in results.ours},
        f"below_{enough}_of_best_peer": {o: results.behind(o, BEST, enough) for o in results.ours},
        "not_begun": list(results.not_begun),
        "disturbed": results.disturbed,
        "median_compile_seconds": {b: results.compile_seconds(b) for b in results.backends},
        "habits": asdict(results.habits) if results.habits else None,
        "hot_calls": hot_calls_json(results),
        "more_memory_than_eager": results.hungry("weft", "eager"),
        "rank_correlation": results.rank_correlation,
        "passed": results.passed,
        "workloads": {row.name: row_json(results, row) for row in results.rows},
    }


def hot_calls_json(results: Results) -> dict[str, Any]:
    """Microseconds by backend; for weft's also their ratios to the others'."""
    calls = {backend: asdict(found) for backend, found in results.hot_calls.items()}
    others = {b: facts for b, facts in calls.items() if b not in OURS}
    return {
        backend: {
            **facts,
            "alternating_share": results.hot_calls[backend].alternating_share,
            "ratios": {
                b: {name: facts[name] / other[name] for name in facts}
                for b, other in others.items()
                if backend in OURS
            },
        }
        for backend, facts in calls.items()
    }


def row_json(results: Results, row: Row) -> dict[str, Any]:
    work = row.work
    return {
        "group": row.workload.group,
        "program": row.workload.text,
        "flops": work.flops if work else None,
        "bytes": work.bytes if work else None,
        "limit_ms": results.limits.seconds(work) * 1e3 if work else None,
        "best_peer": row.best_peer,
        "ratios": {
            ours: {to: row.ratio(ours, to) for to in (*results.peers, BEST)}
            for ours in results.ours
        },
        "backends": {
            backend: {
                **measurement_json(found),
                "counts": trouble(found) is None,
                "percent_of_limit": results.percent(row, backend),
            }
            for backend, found in row.measurements.items()
        },
    }


def machine(on_cpu: bool) -> dict[str, Any]:
    more = {"compiler": open_toolchain(config.cache).compiler.version} if on_cpu else gpu()
    return {
        "cpu": cpu_facts().get("model name", platform.processor()),
        "processors": os.cpu_count(),
        "system": platform.platform(),
        "commit": commit(),
        **more,
        "versions": {"python": platform.python_version(), **versions()},
    }


def gpu() -> dict[str, Any]:
    """The CUDA device, and the versions of its driver and of NVRTC."""
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    driver = nvidia.driver()
    return {
        "gpu": found.name,
        "compute_capability": f"{found.major}.{found.minor}",
        "multiprocessors": found.multi_processor_count,
        "memory_bytes": found.total_memory,
        "driver": driver.cuDriverGetVersion()[1],
        "nvrtc": list(nvidia.nvrtc().nvrtcVersion()[1:]),
    }


def versions() -> dict[str, str]:
    found = {part.name: part.version for part in importlib.metadata.distributions()}
    return {name: found[name] for name in PACKAGES if name in found}


def commit() -> str | None:
    """The commit of weft's checkout, with a + if files differ from it; None without a checkout."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--exclude=*"]
    found = subprocess.run([*git, "--abbrev=40", "--dirty=+"], capture_output=True, text=True)
    return found.stdout.strip() or None
