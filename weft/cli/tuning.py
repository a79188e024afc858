"""weft tune: searches the choices of a program's kernels by measuring, and keeps what it finds.

rows = tune(spec, Options(target="cpu"), seconds=60, tell=print)
show(rows_table("softmax", rows))

What the exact price says of a program on a CUDA target, with no device: times, bounds, peaks.

show(prediction(Options("cuda:sm_90a"), SourceSpec()))              # a table of usual programs
show(prediction(Options("cuda:sm_90a"), SourceSpec(text)))          # one of a program's kernels
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from typing import Any

import torch

from weft import driver
from weft.cli.check import call
from weft.cli.compiling import compile_source, random_input
from weft.cli.output import microseconds, table
from weft.cli.program import IrText, Source, SourceSpec
from weft.cli.source import load
from weft.cli.workloads import suite
from weft.core.errors import WeftError, choice
from weft.levels import Levels
from weft.link.places import device_of
from weft.options import Options, find_target
from weft.scalar.nest import Program
from weft.scalar.sizes import hint
from weft.targets.gpu import GPU, GPUS
from weft.text import print_program
from weft.tune import predicted
from weft.tune.database import Database, Row, latest, read_rows
from weft.tune.predicted import machine_of, prices
from weft.tune.price.gpu import Price, arithmetic_us, bytes_us
from weft.tune.price.gpu_rates import RATES
from weft.tune.tuner import SETTINGS, Settings, database
from weft.tune.worker import differ

# --- without a device -----------------------------------------------------------------------------

SMALL = 1 << 19  # instructions of warps, of what is run in the simulator

USUAL = """
matmul 4096; matmul 4096 bf16; attention 1x32x2048x128 bf16; cross-entropy 4096x32000
row cumsum 4096x4096; row cumsum 1x1048576; softmax 1x4096x4096; transpose 4096x4096
"""


def without_device(options: Options) -> bool:
    """Whether a program is for a CUDA device that is not here."""
    target = find_target(options.target)
    cuda = isinstance(target, GPU) and target.language == "cuda"
    return cuda and device_of(target, options.simulate).type == "cpu"


def levels_of(program: Source, options: Options) -> list[Levels]:
    """Every graph of a program at all levels; nothing of it runs."""
    compiled: Any = compile_source(program, options)
    return [a.levels() for p in driver.compilation(compiled).programs for a in p.artifact.all()]  # type: ignore[attr-defined]


def simulated(program: Program, target: str, schedule: str, price: Price) -> str:
    """How a small program differs from its default in the simulator; "" where it does not."""
    if sum(price.counts.slots.values()) > SMALL:
        return ""
    torch.manual_seed(0)
    types = [b.type for b in program.inputs]
    inputs = [random_input(str(t.dtype), tuple(map(hint, t.shape))) for t in types]
    default, other = (run_simulated(program, target, text, inputs) for text in ("", schedule))
    return next(filter(None, starmap(differ, zip(default, other, strict=True))), "")


def run_simulated(
    program: Program, target: str, schedule: str, inputs: Sequence[torch.Tensor]
) -> list[Any]:
    options = Options(target, tune="off", schedule=schedule, simulate=True)
    made = driver.compile_text(print_program(program), options)(*inputs)
    return [made] if isinstance(made, torch.Tensor) else list(made)


def prediction(options: Options, spec: SourceSpec) -> Any:
    """A table of a program's kernels; without one, of usual programs, each as a whole."""
    target = options.target
    choice("--target", target, [name for name, gpu in GPUS.items() if gpu.arch in RATES])
    alone = SourceSpec(spec.text, spec.path) != SourceSpec()
    specs = {"": spec} if alone else {n: SourceSpec(w.text) for n, w in suite(USUAL).items()}
    rows: list[list[str]] = []
    for name, one in specs.items():
        for levels in levels_of(source_of(one), options):
            found = prices(levels, target)
            if alone:
                rows += [row(name, [p], p.peak_us) for name, p in found.items()]
            else:
                rows.append(row(name, [*found.values()], whole_peak_us(levels, target, found)))
    columns = ["", "kernels", "predicted us", "bound by", "% of peak"]
    return table(f"{target}: predicted, no device", columns, rows)


def whole_peak_us(levels: Levels, target: str, found: Mapping[str, Price]) -> float:
    """The time at peak of all arithmetic, or to move the program's own inputs and outputs once."""
    whole, machine = levels.program("loop"), machine_of(target)
    moved = bytes_us((*whole.inputs, *whole.outputs), machine)
    return max(moved, sum(arithmetic_us(p.counts, machine) for p in found.values()))


def source_of(spec: SourceSpec) -> Source:
    """The program that a SOURCE describes, with tensors that have no values."""
    program = load(replace(spec, device="meta", meta=True))
    if isinstance(program, Source):
        return program
    raise WeftError("times are predicted of a PyTorch program, not of IR text")


def row(name: str, found: Sequence[Price], peak_us: float) -> list[str]:
    """Of several kernels together, by what bounds the longest one."""
    total, longest = sum(p.us for p in found), max(found, key=lambda p: p.us)
    return [
        name,
        str(len(found)),
        microseconds(total),
        longest.bound,
        f"{100 * peak_us / total:.0f}",
    ]


# --- by measuring ---------------------------------------------------------------------------------


def tune(
    spec: SourceSpec, options: Options, seconds: float, tell: Callable[[str], None]
) -> list[Row]:
    """Tune every graph of a program for its own arguments; the rows that were found.

    A CUDA target without a device is tuned by the exact price.
    """
    program = load(spec)
    if isinstance(program, IrText):
        raise WeftError("weft tune takes a PyTorch program, not IR text")
    settings = Settings(seconds, tell)
    if without_device(options):
        tell(f"PyTorch finds no device: {options.target} is tuned by its predicted times")
        for levels in levels_of(program, options):
            greedy = options.fuse == "greedy"
            predicted.tune(levels, options.target, settings, simulated, greedy)
        return settings.rows
    token = SETTINGS.set(settings)
    try:
        compiled = compile_source(program, replace(options, tune="now"))
        call(replace(program, callable=compiled), compiled)
    finally:
        SETTINGS.reset(token)
    return settings.rows


def rows_table(title: str, rows: Sequence[Row]) -> Any:
    """Each kernel with its time by default and tuned, and what was decided."""
    columns = ["kernel", "target", "default us", "tuned us", "ratio", "times are", "decisions"]
    return table(title, columns, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    times = microseconds(row.default_us), microseconds(row.us)
    ratio = f"{row.us / row.default_us:.2f}" if row.default_us else ""
    kind = "predicted, no device" if row.predicted else "measured"
    return [row.kernel, row.target, *times, ratio, kind, decided(row)]


def decided(row: Row) -> str:
    return ", ".join(f"{name} = {option}" for name, option in row.decisions.items()) or "default"


def summary(rows: Sequence[Row]) -> str:
    """How much of their time the kernels take now, together."""
    programs, kernels = [r for r in rows if r.whole], [r for r in rows if not r.whole]
    how = "predicted to be faster" if any(r.predicted for r in rows) else "faster"
    told = [
        f"{sum(bool(r.decisions) for r in some)} of {len(some)} {what} are {how}: "
        f"all take {sum(r.us for r in some) / before:.2f} of their time"
        for what, some in (("programs", programs), ("kernels", kernels))
        if (before := sum(r.default_us for r in some))
    ]
    return "; ".join(told) or "nothing new to tune"


def maintain(forget: str | None, export: str | None, merge: str | None) -> list[str]:
    """Forget rows, write all to a file, add those of a file; what was done, in words."""
    known, done = database(), list[str]()
    if merge is not None:
        found, rows = latest(read_rows(Path(merge))).values(), known.rows()
        counts = latest([*rows.values(), *found])
        new = [r for r in found if counts[r.key] is r and r != rows.get(r.key)]
        known.add(new)
        done.append(f"{len(new)} of {len(found)} rows of {merge} are new")
    if forget is not None:
        done.append(f"{known.forget(forget)} rows forgotten")
    if export is not None:
        Database(Path(export)).add(all_rows())
        done.append(f"{len(all_rows())} rows written to {export}")
    return done


def all_rows() -> list[Row]:
    return list(database().rows().values())
