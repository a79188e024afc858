"""Where a program's tensors are, and whether kernels for a target reach them there.

misplaced(x.device, GPUS["cuda:sm_90a"])      # None, or the sentence that says why not
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from weft.core.errors import WeftError
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU

Run = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]

SIMULATE = "weft run --simulate, or simulate=True, runs them on the CPU"


def device_of(target: CPU | GPU, simulate: bool) -> torch.device:
    """The device that a program without tensors of its own runs on, for a target."""
    on_gpu = isinstance(target, GPU) and target.language == "cuda" and torch.cuda.is_available()
    if simulate or not on_gpu:
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def run_or_refuse(run: Run, place: torch.device, target: CPU | GPU, simulate: bool) -> Run:
    """The run of a program, or a WeftError that its target does not reach where its tensors are."""
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
    if target.language == "opencl":
        there = f"the tensors are on {place}, and OpenCL devices get copies of those on the CPU"
        return None if place.type == "cpu" else f"{there}: move them (x.cpu())"
    if target.language != "cuda":
        return f"kernels in {target.language} are not launched: {SIMULATE}"
    if place.type == "cuda":
        return None
    kernels = f"kernels for {target.arch} need tensors on a CUDA device, and these are on {place}"
    there = "move them there (x.cuda())" if torch.cuda.is_available() else "PyTorch finds none here"
    return f"{kernels}: {there}; {SIMULATE}"
