"""Learning rates as plain functions of the step's number, which counts from 0.

rate = sequence((100, linear(0.0, 1e-3, 100)), (900, cosine(1e-3, 900)))
rate = warm_up(100, cosine(1e-3, 900))      # the same
rate(50)                                    # 0.0005
"""

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def constant(rate: float) -> Schedule:
    return lambda step: rate


def steps(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """`rate`, times `factor` after each `every` steps."""
    return lambda step: rate * factor ** (step // every)


def linear(start: float, end: float, length: int) -> Schedule:
    """From `start` to `end`, which it has from step `length` on."""
    return lambda step: start + (end - start) * min(step / length, 1.0)


def cosine(rate: float, length: int, end: float = 0.0) -> Schedule:
    """Half a wave from `rate` to `end` (Loshchilov, Hutter 2017), without restarts."""
    return lambda step: end + (rate - end) * (1 + math.cos(math.pi * min(step / length, 1))) / 2


def warm_up(length: int, after: Schedule, start: float = 0.0) -> Schedule:
    """In a line from `start` to where `after` begins, then `after`."""
    return sequence((length, linear(start, after(0), length)), (1, after))


def sequence(*parts: tuple[int, Schedule]) -> Schedule:
    """Schedules in turn, each for its count of steps, which it sees from 0; the last stays."""

    def schedule(step: int) -> float:
        for length, part in parts[:-1]:
            if step < length:
                return part(step)
            step -= length
        return parts[-1][1](step)

    return schedule
