"""All that a report shows of a compiled program, as plain data that JSON holds.

data = gather("softmax", compiled, options)
text_of(data, data["programs"][0]["levels"]["loop"])        # as compiled.ir("loop")
Texts are numbers of lines, which all texts and diffs of a report share: layers repeat. Of numbers
that follow one another only the first stands there, and how many follow, as a negative number.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from weft import driver
from weft.calling import compilation
from weft.core.errors import WeftError
from weft.explain.ceilings import ceilings
from weft.explain.names import SHOWN, Marks
from weft.explain.record import Recording
from weft.explain.why import choices, fusions, regions
from weft.frontend.graph import KNOWN, Known
from weft.levels import Levels, lower
from weft.link.program import STAGES, described, make_spec
from weft.options import Options, find_target
from weft.runtime.layout import item_bytes, lay_out
from weft.runtime.report import KernelReport, Report
from weft.runtime.sizes import at_sizes
from weft.runtime.spec import Call
from weft.targets.gpu import GPU

Json = dict[str, Any]


@dataclass(frozen=True)
class Built:
    """One compiled graph: where it starts, and what was made of it."""

    start: Any
    known: Known
    report: Report
    options: Options
    launched: Any = field(default_factory=lambda: ({}, ()))


def gather(title: str, compiled: Any, options: Options) -> Json:
    """The data of a callable that weft.compile made, or of a program from IR text."""
    lines, found = Lines(), list(graphs(compiled, options))
    programs = [lines_of(program(built), lines) for built in found]
    if not programs:
        raise WeftError(f"nothing of {title} was compiled: all of it runs in eager")
    report, name = compiled.report, found[0].options.target
    target = find_target(name)
    times = report.extern_us or [None] * len(report.externs)
    externs = zip(report.externs, times, strict=True)
    return {
        "title": title,
        "torch": str(torch.__version__),
        "target": {"name": name, "gpu": isinstance(target, GPU), **asdict(target)},
        "options": {name: value for name, value in asdict(options).items() if value},
        "ceilings": ceilings(target),
        "externs": [{"op": op, "why": why, "where": at, "us": us} for (op, why, at), us in externs],
        "eager": list(report.reasons),
        "lines": list(lines.number),
        "programs": programs,
    }


def graphs(compiled: Any, options: Options) -> Iterator[Built]:
    """Every graph that was compiled: forward, backward, for several sizes."""
    if isinstance(compiled, driver.TextProgram):
        own = options.on(torch.device("cpu"))
        yield Built(compiled.program, KNOWN, compiled.report, own)
        return
    for made in compilation(compiled).programs:
        for a in made.artifact.all():  # type: ignore[attr-defined]
            levels: Levels = a.levels()
            yield Built(levels.made["torch"], levels.known, a.report, a.options, a.launched)


class Lines:
    """Numbers of lines, by first appearance; a text as runs of these."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def of(self, lines: list[str]) -> list[int]:
        runs, following = list[int](), -1
        for line in lines:
            number = self.number.setdefault(line, len(self.number))
            if number != following:
                runs.append(number)
            elif runs[-1] < 0:
                runs[-1] -= 1
            else:
                runs.append(-1)
            following = number + 1
        return runs


def lines_of(data: Json, lines: Lines) -> Json:
    """The data of a program with numbers in place of its lines."""
    for level, text in data["levels"].items():
        data["levels"][level] = lines.of(text.split("\n"))
    for step in data["passes"]:
        step["diff"] = lines.of(step["diff"])
    return data


def text_of(data: Json, runs: list[int]) -> str:
    """A text of a report, as the page reads it too."""
    found: list[int] = []
    for n in runs:
        found += range(found[-1] + 1, found[-1] + 1 - n) if n < 0 else [n]
    return "\n".join(data["lines"][n] for n in found)


def program(built: Built) -> Json:
    """One graph, lowered once more with a log that keeps everything."""
    log, options, target = Recording(), built.options, find_target(built.options.target)
    levels = lower(built.start, options, log, built.known)
    marks = Marks(levels, log)
    shown = [level for level in SHOWN if level == "source" or level in levels.made]
    rows = {k.name: k for k in built.report.kernels}
    spent = {name: log.seconds[key] for key, name in STAGES.items() if key in log.seconds}
    return {
        "name": built.report.name,
        "language": levels.language,
        "sizes": built.report.sizes,
        "cached": built.report.cached,
        "levels": {level: levels.text(level) for level in shown},
        "spans": marks.spans,
        "values": {level: renamed(names) for level, names in marks.values.items()},
        "kernels": [kernel(k, rows.get(k.name)) for k in marks.program.kernels],
        "passes": [asdict(p) for p in log.passes],
        "regions": regions(log),
        "fusions": fusions(levels, log, target),
        "choices": choices(levels),
        "arena": arena(built, levels, marks),
        "seconds": {**built.report.seconds, **spent},
    }


def renamed(names: dict[str, str]) -> Json:
    """Values by name; 0 stands for the usual one, which is called alike at the tensor level."""
    return {name: 0 if value == f"t.{name}" else value for name, value in names.items()}


def kernel(k: Any, found: KernelReport | None) -> Json:
    """One kernel; without a row of the report it is not launched, as it copies what is there."""
    buffers = (*k.inputs, *k.outputs)
    facts: Json = {"launched": found is not None}
    if found is not None:
        names = ("symbol", "predicted_us", "measured_us", "flops", "bytes", "rows")
        facts |= {name: getattr(found, name) for name in names}
        facts["launch"] = asdict(found.launch) if found.launch else None
    return {
        "name": k.name,
        "origin": list(k.origin),
        "buffers": [b.name for b in buffers],
        "half": any(
            b.type.dtype.kind == "pair" or b.type.dtype.compute is not b.type.dtype
            for b in k.inputs
        ),  # it may use units for 16-bit products
        **facts,
    }


def arena(built: Built, levels: Levels, marks: Marks) -> Json:
    """The memory plan: each buffer with its life in steps, and its place in the arena if any.

    Sizes that calls decide are those first met.
    """
    emitted = driver.emitted_of(levels, built.options, built.launched[0])
    spec, told = make_spec(emitted, *built.launched), described(emitted, built.launched[1])
    layout = lay_out(spec)
    known = {b.name: b for b in at_sizes(spec, dict(spec.sizes)).buffers}
    kernels = iter(told["kernels"][row]["name"] for row in told["runs"])
    steps = [
        {"kernel": marks.kernels[next(kernels)], "once": step.once is not None}
        if isinstance(step, Call)
        else {"extern": step.target}
        for step in spec.steps
    ]
    rows = [
        {
            "name": name,
            "kind": known[name].kind,
            "bytes": known[name].span * item_bytes(known[name]),
            "first": first,
            "last": last,
            "offset": layout.plan.offsets.get(name),
        }
        for name, (first, last) in layout.lives.items()
    ]
    return {"steps": steps, "bytes": layout.plan.total, "buffers": rows}
