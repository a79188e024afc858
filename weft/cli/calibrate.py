"""`weft doctor --calibrate`: fits the rates of the exact price by small programs, one each.

rates = calibrate(host(), print)        # some 20 s; Rates, with what was not measured scaled
rates_table(default_rates(host()), rates)

samples = samples_of(times_in(text, tell), tell)    # what `weft bench cpu --model` timed, for --fit

Each program is compiled by weft with choices that let one rate decide its time. A rate is what
makes its program's price the measured time; two passes, since programs need several.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

import weft
from weft import driver
from weft.cli.compiling import compile_source
from weft.cli.output import table
from weft.cli.program import SourceSpec
from weft.cli.source import load
from weft.cli.suite_text import machine
from weft.cli.workloads import WORKLOADS
from weft.core.errors import WeftError, choice
from weft.options import Options
from weft.scalar.nest import Kernel
from weft.targets.cpu import CPU
from weft.tune.price.cpu import kernel_us
from weft.tune.price.fit import Sample
from weft.tune.price.rates import Rates, default_rates

CALLS = 15  # of each program, of which the fastest counts
LEAST_SECONDS = 0.05  # of calls of each
PASSES = 2  # over all rates
FACTOR = 16.0  # a rate is at most so far from its default


@dataclass(frozen=True)
class Probe:
    """A program whose time tells one rate, and the choices that make it do so."""

    rate: str
    function: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    schedule: str = "*.threads = no"


@dataclass(frozen=True)
class Measured:
    probe: Probe
    kernels: tuple[Kernel, ...]
    us: float

    def price(self, rates: Rates, target: CPU) -> float:
        return sum(kernel_us(kernel, target, rates) for kernel in self.kernels)


def _additions(x: torch.Tensor) -> torch.Tensor:
    for i in range(12):
        x = torch.where(x > 0.1 * i, x + 0.5, x - 0.25)
    return x


PROBES = (
    Probe("launch_us", torch.relu, ((16,),)),
    Probe("fma", torch.matmul, ((256, 256), (256, 256))),
    Probe("add", _additions, ((4096,),)),
    Probe("step", lambda x: torch.exp(x) + torch.exp(-x), ((4096,),)),
    Probe("store", lambda x: x.expand(4096).contiguous(), ((1,),)),
    Probe("latency", torch.sum, ((4096,),), "*.threads = no\n*.vectors = 1\n*.split = no"),
    Probe("shuffle", lambda x: x.mT.contiguous(), ((4, 32, 32),)),
    Probe("lane", lambda x: x[:, ::7].contiguous(), ((64, 448),)),
    Probe("l2", torch.sum, ((128 << 10,),), "*.threads = no\n*.split = no"),
    Probe("l3", torch.sum, ((2 << 20,),), "*.threads = no\n*.split = no"),
    Probe("memory", torch.sum, ((32 << 20,),), "*.threads = no\n*.split = no"),
    Probe("memory_all", torch.sum, ((32 << 20,),), ""),
    Probe("fork_us", torch.relu, ((4096,),), "*.threads = yes"),
)


def calibrate(target: CPU, tell: Callable[[str], None]) -> Rates:
    """The rates of this machine; those that have no probe keep their ratio to a multiply-add."""
    found: list[Measured] = []
    for probe in PROBES:
        tell(f"measuring {probe.rate}")
        found.append(measure(probe))
    return fit(found, target)


def measure(probe: Probe) -> Measured:
    """Compile and time one program on random numbers."""
    facts: Any = {"schedule": probe.schedule, "tune": "off", "profile": True, "dynamic": False}
    made = weft.compile(probe.function, target="cpu", **facts)
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(shape, generator=generator) for shape in probe.shapes]
    times: list[float] = []
    while len(times) < CALLS or (sum(times) < LEAST_SECONDS * 1e6 and len(times) < 400):
        made(*given)
        times.append(sum(k.measured_us or 0.0 for k in made.report.kernels))
    programs: Any = driver.compilation(made).programs
    (levels,) = [p.artifact.levels() for p in programs]
    return Measured(probe, levels.program("tile").kernels, min(times))


def fit(found: list[Measured], target: CPU) -> Rates:
    """Each rate such that the price of its program is the time that was measured."""
    start = rates = default_rates(target)
    for _ in range(PASSES):
        for one in found:
            rates = replace(rates, **{one.probe.rate: solve(one, rates, start, target)})
            if one.probe.rate == "fma":
                rates = scaled(rates, start)
    return rates


def scaled(rates: Rates, start: Rates) -> Rates:
    """Rates without a probe of their own, by how much faster or slower a multiply-add is."""
    probed = {probe.rate for probe in PROBES} | {"narrow"}
    ratio = rates.fma / start.fma
    others = {name: n * ratio for name, n in asdict(start).items() if name not in probed}
    return replace(rates, **others)


def solve(one: Measured, rates: Rates, start: Rates, target: CPU) -> float:
    """By halving an interval: prices rise, or of bandwidths fall, with a rate.

    The default, where no rate near it explains the time: others decide, or the machine is busy.
    """
    name = one.probe.rate
    default: float = getattr(start, name)

    def price(rate: float) -> float:
        return one.price(replace(rates, **{name: rate}), target)

    low, high = default / FACTOR, default * FACTOR
    rises = name not in BANDWIDTHS
    if not min(price(low), price(high)) < one.us < max(price(low), price(high)):
        return default
    for _ in range(24):
        middle = (low * high) ** 0.5
        above = price(middle) > one.us
        low, high = (low, middle) if above == rises else (middle, high)
    return (low * high) ** 0.5


Times = Mapping[str, Mapping[str, float]]  # microseconds by workload and kernel


def times_in(text: str, tell: Callable[[str], None]) -> Times:
    """The times in what `weft bench cpu --model --json` has written on this machine.

    WeftError for another text, and for figures of another machine; those of another commit, whose
    kernels may have been others, are told.
    """
    own, times = machine(on_cpu=True), dict[str, dict[str, float]]()
    try:
        study = json.loads(text)
        facts = [study["machine"][name] for name in ("cpu", "processors", "commit")]
        for row in study["kernels"]:
            us = times.setdefault(str(row["workload"]), {})[str(row["kernel"])] = row["measured_us"]
            if not 0 < us < math.inf:
                raise ValueError(f"{row['kernel']} took {us} us")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = "it is not what weft bench cpu --model --json writes"
        raise WeftError(f"{told}: {type(error).__name__}, {error}") from None
    if facts[:2] != [own["cpu"], own["processors"]] or not times:
        here = f"this machine is {own['cpu']} with {own['processors']} processors"
        raise WeftError(f"figures of {facts[0]} with {facts[1]}, {here}: measure here")
    if facts[2] != own["commit"]:
        tell(f"the figures are of commit {facts[2]}: its kernels may have been others")
    return times


def samples_of(found: Times, tell: Callable[[str], None]) -> list[Sample]:
    """The timed kernels, compiled anew; one that is gone since then is left out."""
    samples: list[Sample] = []
    for name, us in found.items():
        times = dict(us)
        program: Any = load(SourceSpec(text=WORKLOADS[choice("workload", name, WORKLOADS)].text))
        made: Any = compile_source(program, Options("cpu", tune="off"))
        made.prepare(*program.args, **program.kwargs)
        for part in driver.compilation(made).programs:
            levels: Any = part.artifact.levels()  # type: ignore[attr-defined]
            kernels = [k for k in levels.made["tile"].kernels if k.name in times]
            samples += [Sample(name, k, times.pop(k.name)) for k in kernels]
        tell(f"compiled {name}")
    return samples


BANDWIDTHS = ("l2", "l3", "memory", "memory_all")


def rates_table(start: Rates, rates: Rates) -> Any:
    """Each rate by default and as measured; - where the default stays."""
    default, measured = asdict(start), asdict(rates)
    found = {n: "-" if measured[n] == default[n] else f"{measured[n]:.3g}" for n in default}
    rows = [[n, unit(n), f"{default[n]:.3g}", found[n]] for n in default]
    return table("rates of the exact price", ["rate", "unit", "default", "measured"], rows)


def unit(name: str) -> str:
    ratio = "ratio" if name == "narrow" else "ns"
    return "bytes/ns" if name in BANDWIDTHS else "us" if name.endswith("_us") else ratio
