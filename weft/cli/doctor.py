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

import torch

from weft.config import config
from weft.core.errors import WeftError
from weft.options import Options
from weft.runtime.nvidia import driver, nvrtc
from weft.runtime.nvrtc import compile_text
from weft.targets.cpu import cpu_facts, cpu_flags
from weft.targets.gpu import GPUS

COMPILERS = ("gcc", "clang", "cc")
TORCH_AT_LEAST = (2, 11)
FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve")
PROBE = "#include <math.h>\n#include <stdint.h>\nfloat probe(float x) { return expf(x); }\n"
CUDA_PROBE = '#include "weft_cuda.cuh"\nextern "C" __global__ void probe(f32 *x) { *x = 1.0f; }\n'


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
        gpu_compiler(),
        gpu_driver(),
        gpu(),
        simulator(),
        *(optional(name, use) for name, use in OPTIONAL.items()),
    ]


OPTIONAL = {
    "transformers": "model folders",
    "safetensors": "weights of model folders",
    "pyopencl": "running on OpenCL devices",
}


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
    flags = cpu_flags(cpu_facts())
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


def gpu_compiler() -> Fact:
    """It counts when it makes machine code; no device or driver is needed for that."""
    arches = [target.arch for target in GPUS.values() if target.language == "cuda"]
    try:
        for arch in arches:
            compile_text(CUDA_PROBE, arch)
        version = ".".join(map(str, nvrtc().nvrtcVersion()[1:]))
    except WeftError as error:
        return Fact("NVRTC", False, error.message, needed=False)
    return Fact("NVRTC", True, f"{version}: compiles for {', '.join(arches)}", needed=False)


def gpu_driver() -> Fact:
    try:
        _, version = driver().cuDriverGetVersion()
    except WeftError as error:
        return Fact("NVIDIA driver", False, error.message, needed=False)
    found = f"for CUDA {version // 1000}.{version % 1000 // 10}"
    return Fact("NVIDIA driver", True, found, needed=False)


def gpu() -> Fact:
    """The device that target "cuda" stands for."""
    if not torch.cuda.is_available():
        built = "" if torch.version.cuda else ", which is built without CUDA"
        return Fact("GPU", False, f"PyTorch finds none{built}", needed=False)
    major, minor = torch.cuda.get_device_capability()
    found = f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}"
    try:
        target = Options("cuda").on(torch.device("cuda", torch.cuda.current_device())).target
    except WeftError as error:
        return Fact("GPU", False, f"{found}: {error.message}", needed=False)
    return Fact("GPU", True, f"{found}: {target}", needed=False)


def simulator() -> Fact:
    found = shutil.which("g++")
    told = found or "g++ is not on the PATH: kernels for a GPU are not simulated"
    return Fact("GPU simulator", found is not None, told, needed=False)


def optional(name: str, use: str) -> Fact:
    try:
        return Fact(name, True, importlib.metadata.version(name), needed=False)
    except importlib.metadata.PackageNotFoundError:
        return Fact(name, False, f"not installed; for {use}", needed=False)
