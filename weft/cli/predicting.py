"""What the exact price says of a program on a CUDA target, with no device: times, bounds, peaks.

show(prediction(Options("cuda:sm_90a"), SourceSpec()))              # a table of usual programs
show(prediction(Options("cuda:sm_90a"), SourceSpec(text)))          # one of a program's kernels
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from typing import Any

import torch

from weft import driver
from weft.cli.compiling import compile_source, random_input
from weft.cli.output import microseconds, table
from weft.cli.program import Source, SourceSpec
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
from weft.tune.predicted import machine_of, prices
from weft.tune.price.gpu import Price, arithmetic_us, bytes_us
from weft.tune.price.gpu_rates import RATES
from weft.tune.worker import differ

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
