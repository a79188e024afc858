"""`weft doctor`: probes whether this machine has what weft needs, and what is optional.

all(fact.ok for fact in examine() if fact.needed)
"""

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from weft.config import config
from weft.core.errors import WeftError
from weft.options import Options
from weft.runtime.nvidia import driver, nvrtc
from weft.runtime.nvrtc import compile_text
from weft.runtime.toolchain import open_toolchain
from weft.targets.cpu import cpu_facts, cpu_flags
from weft.targets.gpu import GPUS

FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve")
PROBE = "#include <math.h>\n#include <stdint.h>\nfloat probe(float x) { return expf(x); }\n"
CUDA_PROBE = '#include "weft_cuda.cuh"\nextern "C" __global__ void probe(f32 *x) { *x = 1.0f; }\n'


@dataclass(frozen=True)
class Fact:
    name: str
    ok: bool
    found: str
    needed: bool
    remedy: str = ""

    @property
    def status(self) -> str:
        return "ok" if self.ok else "missing" if self.needed else "absent"


def examine() -> list[Fact]:
    needed = [fact(name, probe, True, remedy) for name, probe, remedy in NEEDED]
    return needed + [fact(name, probe) for name, probe in OPTIONAL.items()]


def fact(name: str, probe: Callable[[], str], needed: bool = False, remedy: str = "") -> Fact:
    """The result of a probe, or the message of its error."""
    try:
        return Fact(name, True, probe(), needed)
    except WeftError as error:
        return Fact(name, False, error.message, needed, remedy)


def pytorch() -> str:
    if torch.__version__ < "2.11":  # compares versions, not strings
        raise WeftError(torch.__version__)
    return torch.__version__


def compiler() -> str:
    """Succeeds if the compiler makes a shared object of a file that includes C headers."""
    found = open_toolchain(config.cache).compiler
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "probe.c"), Path(folder, "probe.o")
        source.write_text(PROBE)
        found.compile(source, made)
        found.link([made], Path(folder, "probe.so"))
    return f"{found.command[0]}: {found.version}"


def cpu() -> str:
    """Never missing: plain C runs everywhere."""
    flags = cpu_flags(cpu_facts())
    features = [f for f in FEATURES if f in flags]
    return f"{platform.machine()}: {' '.join(features) or 'features unknown'}"


def cache() -> str:
    try:
        config.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=config.cache):
            return str(config.cache)
    except OSError as error:
        raise WeftError(f"{config.cache}: {error.strerror}") from None


def entry_point() -> str:
    for point in importlib.metadata.entry_points(group="torch_dynamo_backends"):
        if point.name == "weft":
            return point.value
    raise WeftError("not registered")


def gpu_compiler() -> str:
    """Succeeds if NVRTC makes machine code for all CUDA targets. That needs no device or driver."""
    arches = [target.arch for target in GPUS.values() if target.language == "cuda"]
    for arch in arches:
        compile_text(CUDA_PROBE, arch)
    version = ".".join(map(str, nvrtc().nvrtcVersion()[1:]))
    return f"{version}: compiles for {', '.join(arches)}"


def gpu_driver() -> str:
    _, version = driver().cuDriverGetVersion()
    return f"for CUDA {version // 1000}.{version % 1000 // 10}"


def gpu() -> str:
    """The current CUDA device, and the target that "cuda" stands for on it."""
    if not torch.cuda.is_available():
        built = "" if torch.version.cuda else ", which is built without CUDA"
        raise WeftError(f"PyTorch finds none{built}")
    major, minor = torch.cuda.get_device_capability()
    found = f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}"
    try:
        place = torch.device("cuda", torch.cuda.current_device())
        return f"{found}: {Options('cuda').on(place).target}"
    except WeftError as error:
        raise WeftError(f"{found}: {error.message}") from None


def simulator() -> str:
    found = shutil.which("g++")
    if found is None:
        raise WeftError("g++ is not on the PATH: kernels for a GPU are not simulated")
    return found


def installed(name: str, use: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise WeftError(f"not installed; for {use}") from None


NEEDED = (
    ("python", lambda: f"{platform.python_version()}, {sys.executable}", ""),
    ("torch", pytorch, "weft needs 2.11"),
    ("C compiler", compiler, "weft takes gcc or clang with the C headers (Debian: apt install gcc "
     "libc6-dev), or what WEFT_CC names"),
    ("CPU", cpu, ""),
    ("threads", lambda: f"{torch.get_num_threads()} of {os.cpu_count()} processors", ""),
    ("cache", cache, "set WEFT_CACHE to a folder that can be written"),
    ("torch.compile backend", entry_point,
     'install weft (pip install -e .) for torch.compile(m, backend="weft")'),
)  # fmt: skip
OPTIONAL: dict[str, Callable[[], str]] = {
    "NVRTC": gpu_compiler,
    "NVIDIA driver": gpu_driver,
    "GPU": gpu,
    "GPU simulator": simulator,
    "transformers": partial(installed, "transformers", "model folders"),
    "safetensors": partial(installed, "safetensors", "weights of model folders"),
    "pyopencl": partial(installed, "pyopencl", "running on OpenCL devices"),
}
