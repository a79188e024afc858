"""`weft doctor`: whether this machine has what weft needs, and what it found.

all(fact.ok for fact in examine() if fact.needed)
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from weft.config import config

COMPILERS = ("gcc", "clang", "cc")
TORCH_AT_LEAST = (2, 11)
FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve")
PROBE = "#include <math.h>\n#include <stdint.h>\nfloat probe(float x) { return expf(x); }\n"


@dataclass(frozen=True)
class Fact:
    name: str
    ok: bool
    found: str
    needed: bool = True
    remedy: str = ""

    @property
    def status(self) -> str:
        return "ok" if self.ok else "missing" if self.needed else "absent"


def examine() -> list[Fact]:
    return [
        python(),
        pytorch(),
        compiler(),
        cpu(),
        Fact("threads", True, f"{torch.get_num_threads()} of {os.cpu_count()} processors"),
        cache(),
        entry_point(),
        accelerator(),
        *(optional(name, use) for name, use in OPTIONAL.items()),
    ]


OPTIONAL = {"transformers": "model folders", "safetensors": "weights of model folders"}


def python() -> Fact:
    found = f"{platform.python_version()}, {sys.executable}"
    return Fact("python", sys.version_info >= (3, 10), found, remedy="weft needs Python 3.10")


def pytorch() -> Fact:
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    return Fact("torch", version >= TORCH_AT_LEAST, torch.__version__, remedy="weft needs 2.11")


def compiler() -> Fact:
    """The compiler counts when it makes a shared object, headers included."""
    names = (config.compiler,) if config.compiler else COMPILERS
    remedy = "install gcc or clang (Debian: apt install gcc libc6-dev), or set WEFT_CC"
    failure = f"none of {', '.join(names)} on the PATH"
    for path in filter(None, map(shutil.which, names)):
        with tempfile.TemporaryDirectory() as folder:
            command = [path, "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/probe.so", "-lm"]
            made = subprocess.run(command, input=PROBE, text=True, capture_output=True)
        if made.returncode == 0:
            banner = subprocess.run([path, "--version"], text=True, capture_output=True).stdout
            return Fact("C compiler", True, f"{path}: {(banner.splitlines() or ['?'])[0]}")
        lines = made.stderr.strip().splitlines()
        failure = f"{path} fails: {lines[0] if lines else made.returncode}"
    return Fact("C compiler", False, failure, remedy=remedy)


def cpu() -> Fact:
    """Never missing: plain C runs everywhere."""
    flags: set[str] = set()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                flags = set(line.split(":", 1)[1].split())
                break
    except OSError:
        pass  # not Linux
    features = [f for f in FEATURES if f in flags]
    return Fact("CPU", True, f"{platform.machine()}: {' '.join(features) or 'features unknown'}")


def cache() -> Fact:
    try:
        config.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=config.cache):
            pass
    except OSError as error:
        remedy = "set WEFT_CACHE to a folder that can be written"
        return Fact("cache", False, f"{config.cache}: {error.strerror}", remedy=remedy)
    return Fact("cache", True, str(config.cache))


def entry_point() -> Fact:
    points = importlib.metadata.entry_points(group="torch_dynamo_backends")
    found = [point.value for point in points if point.name == "weft"]
    if found:
        return Fact("torch.compile backend", True, found[0])
    remedy = 'install weft (pip install -e .) for torch.compile(m, backend="weft")'
    return Fact("torch.compile backend", False, "not registered", remedy=remedy)


def accelerator() -> Fact:
    if torch.cuda.is_available():
        return Fact("GPU", True, torch.cuda.get_device_name(), needed=False)
    return Fact("GPU", False, "none found: weft compiles for the CPU", needed=False)


def optional(name: str, use: str) -> Fact:
    try:
        return Fact(name, True, importlib.metadata.version(name), needed=False)
    except importlib.metadata.PackageNotFoundError:
        return Fact(name, False, f"not installed; for {use}", needed=False)
