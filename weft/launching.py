"""A compiled GPU program on a device: what a driver makes of kernels, launches and buffers.

linked = launch(program, launches, symbols, predicted, GPUS["cuda:sm_90a"], {}, tensors[0].device)
linked.program.run(tensors)
Part of the driver, like linking: here a program's buffers meet the runtime's, and targets devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from weft.config import config
from weft.core.errors import WeftError
from weft.emit.gpu import Launch
from weft.linking import Linked, described, make_spec
from weft.runtime.cache import Cache
from weft.runtime.cuda_device import CUDADevice, refusal
from weft.runtime.gpu_program import Device, GPUKernel, GPUProgram
from weft.runtime.layout import lay_out
from weft.scalar.nest import Program
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU

Run = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]

SIMULATE = "weft run --simulate, or simulate=True, runs them on the CPU"


def launch(
    program: Program,
    launches: Mapping[str, Launch],
    symbols: Mapping[str, str],
    predicted: Mapping[str, float],
    target: GPU,
    writes: Mapping[int, int],
    place: torch.device,
) -> Linked:
    """Compile and load for the device at `place`; `writes` as in linking."""
    spec = make_spec(program, symbols, writes)
    kernels = {
        symbol: GPUKernel(launches[symbol].source, launches[symbol].grid, launches[symbol].block)
        for symbol in dict.fromkeys(symbols[k.name] for k in program.kernels)
    }
    made = GPUProgram(lay_out(spec), kernels, open_device(place, target.arch))
    return Linked(made, described(program, symbols, predicted), False)


@cache
def open_device(place: torch.device, arch: str) -> Device:
    wrong = refusal(place.index, arch)
    if wrong is not None:
        raise WeftError(wrong)
    return CUDADevice(place.index, arch, Cache(config.cache))


def device_of(target: CPU | GPU, simulate: bool) -> torch.device:
    """Where a program that names no device runs on the target, as far as this machine has one."""
    on_gpu = isinstance(target, GPU) and target.language == "cuda" and torch.cuda.is_available()
    if simulate or not on_gpu:
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def placed(run: Run, place: torch.device, target: CPU | GPU, simulate: bool) -> Run:
    """What runs a program, or says why its target cannot where its tensors are."""
    wrong = None if simulate else misplaced(place, target)

    def refuse(tensors: Sequence[torch.Tensor]) -> Sequence[Any]:
        raise WeftError(wrong or "")

    return refuse if wrong else run


def misplaced(place: torch.device, target: CPU | GPU) -> str | None:
    """Why a program of tensors that lie there does not run on the target; None where it does."""
    if isinstance(target, CPU):
        if place.type == "cpu":
            return None
        how = "they have no values" if place.type == "meta" else 'compile with target="cuda"'
        return f"the tensors are on {place}, and kernels for a CPU do not reach them: {how}"
    if target.language != "cuda":
        return f"kernels in {target.language} are not launched yet: {SIMULATE}"
    if place.type == "cuda":
        return None
    kernels = f"kernels for {target.arch} need tensors on a CUDA device, and these are on {place}"
    there = "move them there (x.cuda())" if torch.cuda.is_available() else "PyTorch finds none here"
    return f"{kernels}: {there}; {SIMULATE}"
