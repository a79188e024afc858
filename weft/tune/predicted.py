"""Tunes a GPU's kernels with no device: a beam over their choices, by the exact price.

rows = tune(levels, "cuda:sm_90a", Settings(seconds=60), check)    # rows that say: predicted

A kernel is scheduled under some decisions, and the first choice that is still free branches: the
WIDTH cheapest schedules so far go on, each with the likeliest options of that choice. What gives a
text that was seen is dropped. The cheapest is kept where it is GAIN better than the default, and
holds: its levels are verified, it does not spill, and `check` finds nothing against it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import cast

from weft.config import config
from weft.core.errors import NoCompiler, WeftError
from weft.core.passes import PassLog
from weft.levels import VERIFY, Levels, lower
from weft.options import Options, find_target
from weft.runtime.cache import Cache
from weft.runtime.nvrtc import compile_cubin
from weft.scalar.nest import Kernel, Program
from weft.targets.gpu import GPU
from weft.tune.database import Row, kernel_key
from weft.tune.price.gpu import Price, price
from weft.tune.text import write_schedule
from weft.tune.tuner import Settings, database

logger = logging.getLogger(__name__)

WIDTH = 4  # schedules that go on
OPTIONS = 4  # of a choice that are tried beside the cheapest one
GAIN = 0.02  # at least
LIKELY, FINE = 8, 16  # schedules that are priced again, by so many iterations of a loop

# Of a program, a target, a schedule and its price: what is wrong with its results, or ""
Check = Callable[[Program, str, str, Price], str]
Build = Callable[[Mapping[str, str]], "Schedule | None"]


@dataclass(frozen=True)
class Schedule:
    """A kernel under decisions, which differ from the cheapest options; its text and price.

    `options` are those of each choice that it met, the one taken first.
    """

    decisions: Mapping[str, str]
    options: Mapping[str, tuple[str, ...]]
    text: str
    price: Price
    levels: Levels
    settled: frozenset[str] = frozenset()  # choices that have branched


def scheduled(kernel: Kernel, target: str, decisions: Mapping[str, str]) -> Schedule | None:
    """A kernel of the loop level under decisions; None where they do not fit, or it does not."""
    text = write_schedule({kernel.name: decisions})
    try:
        levels = lower(alone(kernel), Options(target, tune="off", schedule=text), PassLog())
        found = price(levels.made["kernel"].kernels[0], machine_of(target))
    except WeftError:
        return None
    except Exception as error:  # of passes that decisions bring into a case of their own
        logger.warning("left out, and please report it: %r, by\n%s", error, text)
        return None
    met = levels.chooser.kernels[kernel.name].met
    options = {n: (c.taken, *(o for o in c.options if o != c.taken)) for n, c in met.items()}
    (source,) = levels.sources.values()
    return Schedule(decisions, options, source, found, levels)


def alone(kernel: Kernel) -> Program:
    """A program of one kernel."""
    return Program("loop", kernel.name, kernel.inputs, kernel.outputs, (kernel,))


def machine_of(target: str) -> GPU:
    return cast("GPU", find_target(target))  # the price itself refuses others


def beam(build: Build, end: float) -> list[Schedule]:
    """The default, then the other schedules that were met until then; none without a default."""
    default = build({})
    seen = {} if default is None else {default.text: default}
    front = list(seen.values())
    while front and time.monotonic() < end:
        front = [s for one in front for s in branches(one, build, seen, end)]
        front = sorted(front, key=us_of)[:WIDTH]
    return list(seen.values())


def branches(
    one: Schedule, build: Build, seen: dict[str, Schedule], end: float
) -> Iterator[Schedule]:
    """The schedule with each option of its first free choice; as it is with that one taken."""
    free = (n for n, o in one.options.items() if len(o) > 1 and n not in one.settled)
    name = next(free, None)
    if name is None:
        return
    settled = one.settled | {name}
    yield replace(one, settled=settled)
    for option in one.options[name][1 : OPTIONS + 1]:
        other = build({**one.decisions, name: option}) if time.monotonic() < end else None
        if other is not None and seen.setdefault(other.text, other) is other:
            yield replace(other, settled=settled)


def tune(levels: Levels, target: str, settings: Settings, check: Check) -> list[Row]:
    """Search the choices of a program's kernels; those that the database has stay as they are."""
    machine, rows = machine_of(target), list[Row]()
    assert levels.unique is not None
    kernels = {kernel_key(k, machine): k for k in levels.unique.program.kernels}
    fresh = {key: k for key, k in kernels.items() if database().find(key) is None}
    for key, kernel in fresh.items():
        end = time.monotonic() + settings.seconds / len(fresh)
        found = beam(lambda d, k=kernel: scheduled(k, target, d), end)
        if not found:
            settings.tell(f"{kernel.name} is not tuned: its default has no exact price")
            continue
        likely = sorted((s for s in found[1:] if us_of(s) < us_of(found[0])), key=us_of)[:LIKELY]
        default_us, *others = (surely_us(s, machine) for s in (found[0], *likely))
        limit, tried = (1 - GAIN) * default_us, len(found) - 1
        if not tried and time.monotonic() >= end:
            settings.tell(f"{kernel.name} is not tuned: its time was over with its default")
            continue
        better = sorted((us, i) for i, us in enumerate(others) if us < limit)
        sure = ((us, likely[i]) for us, i in better)
        sound = (pair for pair in sure if holds(kernel, target, pair[1], check, settings.tell))
        us, best = next(sound, (default_us, found[0]))
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        facts = dict(best.decisions), default_us, us, tried, when, True
        rows.append(Row(key, kernel.name, target, *facts))
        told = f"{tried} candidates, {us / default_us:.2f} of its predicted time"
        settings.tell(f"{kernel.name}: {told}")
    database().add(rows)
    settings.rows += rows
    return rows


def us_of(schedule: Schedule) -> float:
    return schedule.price.us


def surely_us(schedule: Schedule, machine: GPU) -> float:
    """The predicted time of a schedule, by more iterations of its loops."""
    return price(schedule.levels.made["kernel"].kernels[0], machine, FINE).us


def holds(
    kernel: Kernel, target: str, found: Schedule, check: Check, tell: Callable[[str], None]
) -> bool:
    """Whether a schedule is right, as far as can be seen without a device."""
    lines = write_schedule({kernel.name: found.decisions})
    try:
        for level in ("tile", "kernel"):
            VERIFY[level](found.levels.made[level])
        spilled = spills(found.text, machine_of(target).arch)
        wrong = f"it spills {spilled} bytes" if spilled else ""
        wrong = wrong or check(alone(kernel), target, lines, found.price)
    except WeftError as error:
        wrong = error.message
    if wrong:
        tell(f"left out: {wrong}, by\n{lines}")
    return not wrong


def spills(text: str, arch: str) -> int:
    """Bytes of registers that are spilled to memory; 0 where NVRTC is not installed.

    CompilerError for a text that it refuses.
    """
    try:
        made = compile_cubin(text, arch, Cache(config.cache))
    except NoCompiler:
        return 0
    return max(kernel.spill_bytes for kernel in made.kernels.values())


def prices(levels: Levels, target: str) -> dict[str, Price]:
    """The exact price of every kernel of a program, by name."""
    first = {k.name: price(k, machine_of(target)) for k in levels.made["kernel"].kernels}
    return levels.unique.all(first) if levels.unique else first
