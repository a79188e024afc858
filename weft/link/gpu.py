"""A program for a GPU: its kernels compiled, loaded on a device, and kept in the cache.

linked = link(emitted, GPUS["cuda:sm_90a"], {}, x.device, key)     # relink finds it the next time
linked.program.run(tensors)
"""

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from weft.config import config
from weft.core.errors import CompilerError, WeftError
from weft.emit.gpu import Launch
from weft.link.places import misplaced
from weft.link.program import Emitted, Linked, described, make_spec
from weft.runtime.cache import Cache
from weft.runtime.cuda import CUDADevice, refusal
from weft.runtime.gpu_program import Device, GPUKernel, GPUProgram
from weft.runtime.layout import lay_out
from weft.runtime.nvidia import nvrtc
from weft.runtime.nvrtc import Resources, compile_all
from weft.runtime.opencl import OpenCLProgram
from weft.runtime.report import LaunchReport
from weft.runtime.sizes import value
from weft.runtime.spec import Call, ProgramSpec
from weft.targets.gpu import GPU
from weft.targets.nvidia import REGISTERS, occupancy

LAUNCHES = "launches"  # the part of the cache where programs for GPUs are


@dataclass(frozen=True)
class CachedProgram:
    """A program for a GPU as the cache keeps it; kernels by symbol."""

    spec: ProgramSpec
    kernels: Mapping[str, GPUKernel]
    extra: Mapping[str, Any]


def link(
    emitted: Emitted, target: GPU, writes: Mapping[int, int], place: torch.device, key: str | None
) -> Linked:
    """Compile and load for the device at `place`, and keep it under the key.

    `writes` says which outputs go into which inputs instead of out.
    """
    made = to_cache(emitted, writes)
    if key is not None:
        plain = {symbol: astuple(kernel) for symbol, kernel in made.kernels.items()}
        tree = {"spec": made.spec.to_json(), "kernels": plain, "extra": made.extra}

        def fill(folder: Path) -> None:
            (folder / "program.json").write_text(json.dumps(tree))

        store().entry(LAUNCHES, key, fill)
    return load(made, target, place)


def relink(key: str, place: torch.device, target: GPU, simulate: bool) -> Linked | None:
    """The program that was made under that key before, if the cache still has it."""
    path = store().address(LAUNCHES, key) / "program.json"
    if simulate or misplaced(place, target) or not path.exists():
        return None
    tree = json.loads(path.read_text())
    kernels = {symbol: GPUKernel(*fields) for symbol, fields in tree["kernels"].items()}
    made = CachedProgram(ProgramSpec.from_json(tree["spec"]), kernels, tree["extra"])
    return replace(load(made, target, place), cached=True)


def load(made: CachedProgram, target: GPU, place: torch.device) -> Linked:
    layout, kernels = lay_out(made.spec), made.kernels
    if target.language == "opencl":
        return Linked(OpenCLProgram(layout, kernels, config.opencl), made.extra, False)
    device = open_device(place, target.arch)
    extra = with_launches(made, device.resources(kernels), target)
    return Linked(GPUProgram(layout, kernels, device), extra, False)


def store() -> Cache:
    return Cache(config.cache)


def to_cache(emitted: Emitted, writes: Mapping[int, int]) -> CachedProgram:
    launches: Mapping[str, Launch] = emitted.launches
    kernels = {
        symbol: GPUKernel(k.source, k.grid, k.block, k.dynamic_bytes, k.maps)
        for symbol, k in launches.items()
    }
    return CachedProgram(make_spec(emitted, writes), kernels, described(emitted))


def with_launches(
    made: CachedProgram, resources: Mapping[str, Resources], target: GPU
) -> dict[str, Any]:
    """The report's rows of the kernels, with launch configuration, registers and occupancy."""
    hints = dict(made.spec.sizes)
    calls = [step for step in made.spec.steps if isinstance(step, Call)]
    peak = target.memory_bytes_per_ns * target.cores * 1e3
    rows: list[dict[str, Any]] = []
    for row, call in zip(made.extra["kernels"], calls, strict=True):
        kernel, used = made.kernels[call.symbol], resources.get(call.symbol)
        told: dict[str, Any] = {}
        if used is not None:
            shared = used.shared_bytes + kernel.shared
            full = occupancy(target.arch, kernel.block, used.registers, shared)
            if full == 0.0:
                raise WeftError(oversized(call.symbol, kernel.block, used, shared, target))
            told = {"shared_bytes": shared, "registers": used.registers, "occupancy": full}
            told["spill_bytes"] = used.spill_bytes
        found = LaunchReport(value(kernel.grid, hints), kernel.block, peak, **told)
        rows.append({**row, "launch": found})
    return {**made.extra, "kernels": rows}


def predicted_launches(emitted: Emitted, target: GPU) -> dict[str, Any]:
    """The same rows without a device; with registers and spills where there is a compiler."""
    made, used = to_cache(emitted, {}), {}
    if has_compiler(target):
        texts = {name: kernel.source for name, kernel in made.kernels.items()}
        cubins = compile_all(texts.values(), target.arch, store())
        used = {name: cubins[text].kernels[name] for name, text in texts.items()}
    return with_launches(made, used, target)


def oversized(symbol: str, block: int, used: Resources, shared: int, target: GPU) -> str:
    takes = f"{block} threads of {used.registers} registers, {shared} bytes of shared memory"
    most = f"{REGISTERS} registers, {target.shared} bytes for a block"
    return f"kernel {symbol} does not fit a multiprocessor of {target.arch}: {takes}; it has {most}"


def has_compiler(target: GPU) -> bool:
    """Whether this machine compiles for the target."""
    try:
        return target.language == "cuda" and bool(nvrtc())
    except CompilerError:
        return False


@cache
def open_device(place: torch.device, arch: str) -> Device:
    wrong = refusal(place.index, arch)
    if wrong is not None:
        raise WeftError(wrong)
    return CUDADevice(place.index, arch, store())
