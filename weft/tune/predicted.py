"""Tunes a GPU's kernels with no device: a beam over their choices, by the exact price.

rows = tune(levels, "cuda:sm_90a", Settings(seconds=60), check)    # rows that say: predicted

First the program's own choices are searched, then each kernel's, by the beam of search.py. The
cheapest is kept where it is GAIN better than the default, and holds: its levels are verified, it
does not spill, and `check` finds nothing against it.
"""

import time
from collections.abc import Callable
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
from weft.tune.database import PRICING, Row, digest_of, kernel_key, now, program_key
from weft.tune.price.gpu import Price, price
from weft.tune.price.scheduled import Fusing, alone, scheduled
from weft.tune.search import Scheduled, beam, us_of
from weft.tune.text import write_schedule
from weft.tune.tuner import FUSING, Settings, database

GAIN = 0.02  # at least
LIKELY, FINE = 8, 16  # schedules that are priced again, by so many iterations of a loop

# Of a program, a target, a schedule and its price: what is wrong with its results, or ""
Check = Callable[[Program, str, str, Price], str]


def machine_of(target: str) -> GPU:
    return cast("GPU", find_target(target))  # the price itself refuses others


def fuse(levels: Levels, target: str, settings: Settings) -> Levels:
    """Search the choices of a whole program; its levels under what was found, which is kept."""
    graph = levels.made.get("tensor")
    if graph is None or database().find(key := program_key(graph, machine_of(target))) is not None:
        return levels
    end = time.monotonic() + FUSING * settings.seconds
    fusing = Fusing(graph, target, levels.known, "cached")
    found = beam(fusing, end, {}, width=1)
    if len(found) < 2:
        return levels
    best = min(found, key=us_of)
    best = best if best.us < (1 - GAIN) * found[0].us else found[0]
    facts = dict(best.decisions), found[0].us, best.us, len(found) - 1, now()
    row = Row(key, fusing.name, target, *facts, True, digest_of(PRICING), whole=True)
    database().add([row])
    settings.rows.append(row)
    settings.tell(
        f"{row.kernel}: {row.tried} candidates, {row.us / row.default_us:.2f} of its predicted time"
    )
    return lower(graph, Options(target), PassLog(), levels.known) if best.decisions else levels


def tune(
    levels: Levels, target: str, settings: Settings, check: Check, fuses: bool = True
) -> list[Row]:
    """Search the choices of a program's kernels; those that the database has stay as they are.

    First which kernels it has, unless it is compiled with other fusion than the default.
    """
    machine, rows, start = machine_of(target), list[Row](), time.monotonic()
    levels = fuse(levels, target, settings) if fuses else levels
    seconds = settings.seconds - (time.monotonic() - start)
    assert levels.unique is not None
    kernels = {kernel_key(k, machine): k for k in levels.unique.program.kernels}
    fresh = {key: k for key, k in kernels.items() if database().find(key) is None}
    for key, kernel in fresh.items():
        end = time.monotonic() + seconds / len(fresh)
        found = beam(lambda d, k=kernel: scheduled(k, target, d), end, {})
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
        facts = dict(best.decisions), default_us, us, tried, now(), True, digest_of(PRICING)
        rows.append(Row(key, kernel.name, target, *facts))
        told = f"{tried} candidates, {us / default_us:.2f} of its predicted time"
        settings.tell(f"{kernel.name}: {told}")
    database().add(rows)
    settings.rows += rows
    return rows


def surely_us(schedule: Scheduled, machine: GPU) -> float:
    """The predicted time of a schedule, by more iterations of its loops."""
    return exactly(schedule, machine).us


def exactly(schedule: Scheduled, machine: GPU) -> Price:
    return price(schedule.made.made["kernel"].kernels[0], machine, FINE)


def holds(
    kernel: Kernel, target: str, found: Scheduled, check: Check, tell: Callable[[str], None]
) -> bool:
    """Whether a schedule is right, as far as can be seen without a device."""
    lines = write_schedule({kernel.name: found.decisions})
    try:
        for level in ("tile", "kernel"):
            VERIFY[level](found.made.made[level])
        spilled = spills(found.text, machine_of(target).arch)
        wrong = f"it spills {spilled} bytes" if spilled else ""
        wrong = wrong or check(alone(kernel), target, lines, exactly(found, machine_of(target)))
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
