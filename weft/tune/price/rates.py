"""What instructions and bytes cost on a CPU: data for each instruction set, or as measured here.

rates_of(CPUS["avx512"]).fma        # 0.27 ns of a core for a multiply-add of a whole register
write_rates(path, measured)         # `weft doctor --calibrate`; rates_of(host()) then reads them
"""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from weft.config import config
from weft.core.errors import CacheError
from weft.targets.cpu import CPU, cpu_facts

logger = logging.getLogger(__name__)

VERSION = 1  # of the file: another one is measured again


@dataclass(frozen=True)
class Rates:
    """ns of one core for an instruction on a whole vector register; bytes a ns of one core.

    A step is a unit of a scalar function's cost, such as exp's 14 (scalar/ops.py).
    """

    fma: float = 0.27  # multiply, or multiply and add, of floats
    add: float = 0.22  # any other arithmetic of one instruction
    step: float = 0.25  # of a function of many instructions, and of a division
    shuffle: float = 0.45  # lanes moved between or within registers
    load: float = 0.27
    store: float = 0.54
    lane: float = 0.27  # one lane of a gather or a scatter
    narrow: float = 0.5  # of all these, for half a register or less, a scalar too
    latency: float = 1.08  # ns until an addition's or a multiply-add's result can be added to
    turn: float = 0.35  # one more iteration of a loop
    enter: float = 3.0  # one more loop that ends
    jump: float = 13.0  # to another page, in every iteration of a loop
    l2: float = 110.0  # bytes a ns from the second-level cache
    l3: float = 75.0  # from the last one
    memory: float = 32.0  # from memory where one core reads it
    memory_all: float = 60.0  # where all cores do, together
    fork_us: float = 3.0  # one more parallel region
    launch_us: float = 0.1  # one more kernel


DEFAULTS: Mapping[str, Rates] = {
    "avx512f": Rates(),
    "avx2": Rates(fma=0.15, add=0.11, step=0.14, load=0.15, store=0.28, narrow=1.0),
    "": Rates(fma=0.15, add=0.12, step=0.15, load=0.15, store=0.28, narrow=1.0),
}


def default_rates(target: CPU) -> Rates:
    """Those of a machine like the target, which nobody has measured."""
    isa = {64: "avx512f", 32: "avx2"}.get(target.vector_bytes, "")
    return DEFAULTS[isa]


def rates_of(target: CPU) -> Rates:
    """As measured on this machine for that target, or else the default ones."""
    path = rates_path(target)
    try:
        stamp = path.stat().st_mtime_ns
    except OSError:
        return default_rates(target)
    return measured(path, machine_of(target), stamp) or default_rates(target)


def machine_of(target: CPU) -> str:
    """The name of the CPU, and what of it the target uses: rates are for both."""
    model = cpu_facts().get("model name", "unknown")
    return f"{model}, {target.cores} cores, {target.vector_bytes}-byte vectors"


def rates_path(target: CPU) -> Path:
    return config.cache / f"rates-{target.vector_bytes}.json"


def write_rates(path: Path, rates: Rates, machine: str) -> None:
    """Keep measured rates; CacheError where the file cannot be written."""
    text = json.dumps({"version": VERSION, "machine": machine, "rates": asdict(rates)}, indent=2)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        other = path.with_suffix(f".{os.getpid()}")
        other.write_text(text + "\n")
        os.replace(other, path)
    except OSError as error:
        raise CacheError(f"cannot write {path}: {error.strerror}") from error


def read_rates(path: Path, machine: str) -> Rates:
    """The rates of a file; ValueError where it is broken, or another machine's."""
    found: Any = json.loads(path.read_text())
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ValueError("it is of another version of weft")
    if found.get("machine") != machine:
        raise ValueError(f"it is of another machine, {found.get('machine')}")
    given = found.get("rates")
    names = {f.name for f in fields(Rates)}
    if not isinstance(given, dict) or {*given} != names:
        raise ValueError(f"it does not have the rates {', '.join(sorted(names))}")
    if not all(isinstance(n, int | float) and 0 < n < 1e6 for n in given.values()):
        raise ValueError("a rate is no positive number")
    return replace(Rates(), **given)


@lru_cache(8)
def measured(path: Path, machine: str, stamp: int) -> Rates | None:
    """None, and a warning, for a file that is broken or another machine's."""
    try:
        return read_rates(path, machine)
    except (OSError, ValueError) as error:
        told = "run weft doctor --calibrate"
        logger.warning("%s is not used: %s; %s", path, error, told)
        return None
