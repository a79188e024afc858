"""Says which tensor of a step is the first that is not finite.

refuse_not_finite(objective, state, batch, loss)    # WeftError: "step 12: the loss is nan; ..."
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.module_tracker import ModuleTracker

from weft.core.errors import WeftError


def refuse_not_finite(objective: nn.Module, state: Any, batch: Any, loss: Tensor) -> None:
    """Computes loss and gradients again in eager, and raises the WeftError."""
    given = {f"input {i}": t for i, t in enumerate(batch)} | state.params
    named = [f"{n}, {shown(t)}" for n, t in given.items() if not_finite(t, any_of=True)]
    first = named[0] if named else watched(objective, state, batch)
    message = f"step {state.step + 1}: the loss is {loss.item():g}; the first tensor that is not"
    raise WeftError(f"{message} finite is {first}; parameters are those of step {state.step}")


def not_finite(tensor: Any, any_of: bool) -> bool:
    """Whether it holds NaN or, if `any_of` these, an infinity."""
    floats = isinstance(tensor, Tensor) and tensor.is_floating_point()
    return floats and bool(tensor.isnan().any() or (any_of and tensor.isinf().any()))


def shown(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def watched(objective: nn.Module, state: Any, batch: Any) -> str:
    """The first result of an operator with NaN, forward then backward, or else with infinities:
    those of a mask are meant."""
    found: dict[bool, str] = {}
    tracker = ModuleTracker()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            out = func(*args, **(kwargs or {}))
            for kind in (False, True):
                bad = [t for t in tree_leaves(out) if kind not in found and not_finite(t, kind)]
                if bad:
                    place = max((p for p in tracker.parents if p != "Global"), key=len, default="")
                    found[kind] = f"{shown(bad[0])} by {func} in {place.partition('.')[2]}"
            return out

    params = {n: p.detach().requires_grad_() for n, p in state.params.items()}
    copies = {n: b.clone() for n, b in state.buffers.items()}
    with torch.random.fork_rng(), torch.enable_grad(), tracker, Watch():
        value = functional_call(objective, {**params, **copies}, tuple(batch))
        torch.autograd.grad(value, list(params.values()), allow_unused=True)
    return found.get(False) or found.get(True) or "not found again, for other random numbers"
