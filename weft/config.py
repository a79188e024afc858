"""Every environment variable weft reads, read once.

config.cache, config.compiler, config.verbose
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import WeftError


@dataclass(frozen=True)
class Config:
    """What the environment asks for."""

    cache: Path  # WEFT_CACHE: where compiled programs are kept
    cache_bytes: int  # WEFT_CACHE_GB: beyond, what was used least recently goes; default: 8
    compiler: str | None  # WEFT_CC: the C compiler to use; unset: gcc or clang from the PATH
    opencl: str | None  # WEFT_OPENCL: part of the name of the OpenCL device to use, or its driver
    target: str  # WEFT_TARGET: what `target="auto"` means; unset: where the tensors are
    debug: bool  # WEFT_DEBUG=1: what weft fails on is an error, and does not run in eager
    verbose: int  # WEFT_VERBOSE: 1 prints passes and times, 2 a diff per pass


def number(environment: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(environment.get(name) or default)
    except ValueError as e:
        raise WeftError(f"{name} is {environment[name]!r}: a number is wanted") from e


def read_environment(environment: Mapping[str, str]) -> Config:
    home = environment.get("XDG_CACHE_HOME") or "~/.cache"
    verbose = environment.get("WEFT_VERBOSE", "0")
    return Config(
        cache_bytes=int(number(environment, "WEFT_CACHE_GB", 8.0) * 1e9),
        cache=Path(environment.get("WEFT_CACHE") or f"{home}/weft").expanduser(),
        compiler=environment.get("WEFT_CC") or None,
        opencl=environment.get("WEFT_OPENCL") or None,
        target=environment.get("WEFT_TARGET") or "auto",
        debug=environment.get("WEFT_DEBUG", "0") not in ("", "0"),
        verbose=int(verbose) if verbose.isdecimal() else 0,
    )


config = read_environment(os.environ)
