"""How far rounding to a dtype can move a program's results: Monte Carlo arithmetic.

Every operation runs in float64, and a result that the dtype cannot hold becomes one of the numbers
beside it, at random; what results differ by, run to run, is what rounding alone explains. Values
that the dtype holds (inputs, what is moved or selected of them) stay as they are. An operation that
adds many terms rounds inside, too: its operands are moved by an ulp or two beforehand.

D. S. Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", 1997.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

RUNS = 6
SUMS = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "sum", "mean", "cumsum",
        "convolution", "convolution_backward", "native_batch_norm")  # fmt: skip


class RandomRounding(TorchDispatchMode):
    """Rounds every float64 result to a number an ulp or two away, by its own generator."""

    def __init__(self, seed: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.dtype, self.info = dtype, torch.finfo(dtype)
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ in SUMS:
            args = tree_map_only(torch.Tensor, self.moved, args)
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, torch.Tensor) and t.dtype is torch.float64 and t.numel():
                self.round_(t)
        return out

    def moved(self, t: torch.Tensor) -> torch.Tensor:
        """The tensor with every element an ulp or two away."""
        return t + self.ulps(t) if t.dtype is torch.float64 else t

    def ulps(self, t: torch.Tensor) -> torch.Tensor:
        """-2, -1, 1 or 2 ulp of the dtype for each element, so that equal errors rarely cancel."""
        count = torch.randint(0, 4, t.shape, generator=self.generator).double() - 2
        ulp = torch.exp2(torch.frexp(t).exponent.double() - 1) * self.info.eps
        return (count + (count >= 0)) * ulp.clamp(min=self.info.smallest_normal * self.info.eps)

    def round_(self, t: torch.Tensor) -> None:
        near = t.to(self.dtype).double()
        inexact = (near != t) & t.isfinite() & near.isfinite()
        if bool(inexact.any()):  # never so where `t` is a view of what was rounded
            t.copy_(torch.where(inexact, (near + self.ulps(near)).to(self.dtype).double(), t))


def spread(
    run: Callable[[], Any], exact: Any, dtype: torch.dtype = torch.float32
) -> Sequence[torch.Tensor | None]:
    """For each leaf of `exact`, float64: the largest difference to it of some runs; None if not."""
    leaves = tree_flatten(exact)[0]
    found: list[torch.Tensor | None] = [None] * len(leaves)
    for seed in range(RUNS):
        with RandomRounding(seed, dtype):
            other = tree_flatten(run())[0]
        for i, (a, b) in enumerate(zip(leaves, other, strict=True)):
            if not isinstance(a, torch.Tensor) or a.dtype is not torch.float64:
                continue
            off = (a - b).abs().nan_to_num(0.0, 0.0)
            known = found[i]
            found[i] = off if known is None else torch.maximum(known, off)
    return found
