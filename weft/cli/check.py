"""The accuracy check: the error against float64 eager may be twice that of eager itself.

verdict = check(out, eager, reference)
verdict.passed, verdict.error, verdict.limit
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from weft.cli.program import Source, user_code

# The least limits of the relative error, and the factor on the error of eager.
FLOORS = {torch.float64: 1e-13, torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
EAGER_FACTOR = 2.0
LOW_PRECISION = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Verdict:
    """The check of one output: its relative error, the limit, and `reason`, any other defect."""

    error: float
    limit: float
    reason: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason and self.error <= self.limit


class Float64(TorchDispatchMode):
    """Runs every op in float64, also casts to shorter floats and the creation of float tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = {
            name: torch.float64 if name == "dtype" and value in LOW_PRECISION else value
            for name, value in (kwargs or {}).items()
        }
        return func(*args, **wide)


def is_short_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in LOW_PRECISION


def clone(tree: Any) -> Any:
    """Copies the tensors of the arguments, each once: a program may write to its inputs."""
    memo: dict[int, Any] = {}

    def one(value: torch.Tensor) -> torch.Tensor:
        if id(value) not in memo:
            memo[id(value)] = copy_tensor(value)
        return memo[id(value)]

    return pytree.tree_map_only(torch.Tensor, one, tree)


def copy_tensor(value: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides; of an expanded tensor (a stride is 0) the copy is dense."""
    if 0 in value.stride():
        dense = torch.empty_like(value)
    else:
        dense = value.new_empty_strided(value.shape, value.stride())
    return dense.copy_(value.detach()).requires_grad_(value.requires_grad)


def call(source: Source, function: Callable[..., Any], seed: int = 0) -> Any:
    """Calls `function` with copies of the source's arguments, after seeding random numbers."""
    args, kwargs = clone((source.args, source.kwargs))
    torch.manual_seed(seed)
    with torch.set_grad_enabled(source.wants_grad):
        return function(*args, **kwargs)


def run_eager(source: Source) -> Any:
    """The outputs of PyTorch; the module's buffers do not change.

    SourceError with the program's line if it fails.
    """
    function = copied(source.callable)
    with user_code(source.file):
        return call(source, function)


def run_reference(source: Source) -> Any:
    """The outputs of eager with every float in float64."""
    function = copied(source.callable)
    if isinstance(function, nn.Module):
        function.double()
    wide = pytree.tree_map(
        lambda v: v.detach().double().requires_grad_(v.requires_grad) if is_short_float(v) else v,
        (source.args, source.kwargs),
    )
    double = replace(source, callable=function, args=wide[0], kwargs=wide[1])
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Float64(), user_code("the float64 reference"):
            return call(double, function)
    finally:
        torch.set_default_dtype(default)


def copied(function: Callable[..., Any]) -> Callable[..., Any]:
    return copy.deepcopy(function) if isinstance(function, nn.Module) else function


def check(out: Any, eager: Any, reference: Any) -> list[Verdict]:
    """One verdict per output. Structure, dtype, shape, device and strides must equal eager's.

    If the structure differs, there is a single verdict.
    """
    leaves, structure = pytree.tree_flatten(out)
    eager_leaves, eager_structure = pytree.tree_flatten(eager)
    if structure != eager_structure:
        return [Verdict(math.inf, 0.0, f"returns {structure}, eager returns {eager_structure}")]
    references = pytree.tree_leaves(reference)
    return [
        check_leaf(one, expected, truth)
        for one, expected, truth in zip(leaves, eager_leaves, references, strict=True)
    ]


def check_leaf(out: Any, eager: Any, reference: Any) -> Verdict:
    if not isinstance(eager, torch.Tensor):
        same = type(out) is type(eager) and (out == eager or (out != out and eager != eager))
        return Verdict(0.0, 0.0, "" if same else f"{out!r}, eager gives {eager!r}")
    reason = misfit(out, eager)
    if reason:
        return Verdict(math.inf, 0.0, reason)
    limit = max(
        EAGER_FACTOR * relative_error(eager, reference, eager), FLOORS.get(eager.dtype, 0.0)
    )
    return Verdict(relative_error(out, reference, eager), limit, non_finite_misfit(out, eager))


def check_text(out: Any, truth: Any) -> list[Verdict]:
    """Checks IR text against its interpreter, which computes in float64; strides do not matter."""
    leaves, references = pytree.tree_leaves(out), pytree.tree_leaves(truth)
    return [check_array(o, r) for o, r in zip(leaves, references, strict=True)]


def check_array(out: torch.Tensor, reference: Any) -> Verdict:
    out, truth = out.cpu(), torch.as_tensor(reference)
    if truth.shape != out.shape:
        return Verdict(math.inf, 0.0, f"shape {out.shape}, the interpreter gives {truth.shape}")
    return check_leaf(out, torch.empty_like(out).copy_(truth), truth)


def misfit(out: Any, eager: torch.Tensor) -> str:
    """How type, dtype, shape, device or strides differ from eager's; "" if they do not.

    Strides of axes of extent 1 do not matter.
    """
    if not isinstance(out, torch.Tensor):
        return f"a {type(out).__name__}, eager gives a tensor"
    for fact in ("dtype", "shape", "device"):
        if getattr(out, fact) != getattr(eager, fact):
            return f"{fact} {getattr(out, fact)}, eager gives {getattr(eager, fact)}"
    free = [i for i, extent in enumerate(eager.shape) if extent > 1] if eager.numel() else []
    if any(out.stride(i) != eager.stride(i) for i in free):
        return f"strides {out.stride()}, eager gives {eager.stride()}"
    return ""


def non_finite_misfit(out: torch.Tensor, eager: torch.Tensor) -> str:
    if not eager.is_floating_point():
        return ""
    if not torch.equal(out.isnan(), eager.isnan()):
        return f"{int(out.isnan().sum())} NaN, eager gives {int(eager.isnan().sum())}"
    infinite = eager.isinf() | out.isinf()
    return "" if torch.equal(out[infinite], eager[infinite]) else "Inf in other places than eager"


def relative_error(out: torch.Tensor, reference: torch.Tensor, eager: torch.Tensor) -> float:
    """||out - reference|| / ||reference|| over the elements that are finite in all three.

    It is ||out|| if the reference is zero. For integers and booleans it is the share of elements
    that differ.
    """
    out, reference = out.detach(), reference.detach()
    if not (eager.is_floating_point() or eager.is_complex()):
        return cast("float", (out != reference).double().mean().item()) if out.numel() else 0.0
    wide = torch.complex128 if eager.is_complex() else torch.float64
    finite = eager.detach().isfinite() & reference.isfinite() & out.isfinite()
    truth = torch.where(finite, reference.to(wide), 0.0)
    difference = float((torch.where(finite, out.to(wide), 0.0) - truth).norm())
    norm = float(truth.norm())
    return difference / norm if norm else difference


def worst(verdicts: list[Verdict]) -> Verdict:
    """The worst verdict: a failed one before others, then the nearest to its limit."""
    if not verdicts:
        return Verdict(0.0, 0.0)
    return max(verdicts, key=lambda v: (not v.passed, v.error / v.limit if v.limit else v.error))
