"""Fits the rates of a CPU's exact price to kernels that were timed, by least squares on log time.

samples = [Sample("softmax", kernel, 41.5)]     # its workload, tile-level kernel and least time
found = fit(samples, default_rates(host()), host())
found.rates, found.before, found.after          # and errors on kernels that were held out

Rates stay near where they start: each is pulled there, and at most FACTOR away, since few kernels
tell of most rates. They are kept only where they predict workloads better that had no part in them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.scalar.nest import Block, Kernel
from weft.targets.cpu import CPU
from weft.tune.price.cpu import body_us, placed
from weft.tune.price.rates import Rates

FACTOR = 3.0  # a rate is at most so far from where it starts
PULL = 0.15  # of the logarithm of a rate, towards its start, beside that of a time
STEPS = 4  # of Gauss and Newton
NUDGE = 0.02  # of a logarithm, for a difference instead of a derivative
FOLDS = 4  # parts of the workloads that are held out in turn
GAIN = 0.02  # of the error on what is held out, at least

Logs = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """A kernel at the tile level, and its time in us."""

    workload: str
    kernel: Kernel
    us: float

    @cached_property
    def body(self) -> Block:
        return placed(self.kernel)

    def error(self, rates: Rates, target: CPU) -> float:
        """The logarithm of its price over its time."""
        return float(np.log(body_us(self.body, target, rates) / self.us))


@dataclass(frozen=True)
class Fit:
    """Rates for all samples; how far prices are off on held out ones, as root mean squares of logs.

    `rates` are those that it started from where others are no better there.
    """

    rates: Rates
    before: float
    after: float
    kept: bool


def fit(samples: Sequence[Sample], start: Rates, target: CPU) -> Fit:
    """The rates that explain the samples, if such rates explain what they were not fitted to."""
    names = sorted({s.workload for s in samples})
    fold = {name: i % FOLDS for i, name in enumerate(names)}
    before = errors(samples, start, target)
    after: list[float] = []
    for held in range(min(FOLDS, len(names))):
        known = [s for s in samples if fold[s.workload] != held]
        rates = solved(known, start, target) if known else start
        others = [s for s in samples if fold[s.workload] == held]
        after += [*errors(others, rates, target)]
    off, still = (float(np.sqrt(np.mean(np.square(e)))) if len(e) else 0.0 for e in (before, after))
    kept = still < (1 - GAIN) * off
    return Fit(solved(samples, start, target) if kept else start, off, still, kept)


def errors(samples: Sequence[Sample], rates: Rates, target: CPU) -> Logs:
    return np.array([s.error(rates, target) for s in samples])


def solved(samples: Sequence[Sample], start: Rates, target: CPU) -> Rates:
    """Gauss and Newton on the logarithms of rates, with a pull towards the start."""
    names = [*asdict(start)]
    offset: Logs = np.zeros(len(names))  # of each logarithm, from the start
    limit = np.log(FACTOR)

    def moved(by: Logs) -> Rates:
        factors = np.exp(np.clip(by, -limit, limit))
        pairs = zip(names, factors, strict=True)
        return replace(start, **{n: float(f) * getattr(start, n) for n, f in pairs})

    best = cost = cost_of(errors(samples, start, target), offset)
    for _ in range(STEPS):
        now = errors(samples, moved(offset), target)
        slopes = np.stack(
            [(errors(samples, moved(offset + NUDGE * one), target) - now) / NUDGE
             for one in np.eye(len(names))], axis=1,
        )  # fmt: skip
        left = np.concatenate([slopes, PULL * np.sqrt(len(samples)) * np.eye(len(names))])
        right = np.concatenate([now, PULL * np.sqrt(len(samples)) * offset])
        step = np.linalg.lstsq(left, -right, rcond=None)[0]
        for size in (1.0, 0.5, 0.25):
            tried = np.clip(offset + size * step, -limit, limit)
            cost = cost_of(errors(samples, moved(tried), target), tried)
            if cost < best:
                offset, best = tried, cost
                break
        else:
            break
    return moved(offset)


def cost_of(found: Logs, offset: Logs) -> float:
    """What is made least: squares of errors, and of how far rates went."""
    return float(np.square(found).sum() + len(found) * PULL**2 * np.square(offset).sum())
