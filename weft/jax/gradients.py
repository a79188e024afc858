"""Gradients by JAX's rules, where torch's autograd would not give the same.

Torch differentiates rows, and does not see what jax.custom_vjp and jax.custom_jvp say, nor that a
condition has one branch only. `jax.vjp` makes two functions instead, which are compiled: one of the
results and of what gradients need, and one of that and of the results' gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from weft.jax.library import library
from weft.jax.rows import is_float

Function = Callable[..., Any]


def by_jax(fn: Function, wanted: Sequence[int], derived: Callable[[Function], Function]) -> Any:
    """fn of leaves to a list, as a function of tensors that torch's autograd can differentiate.

    wanted   the leaves that gradients are wanted of
    derived  compiles a function of JAX
    """
    jax = library().jax

    def forward(*leaves: Any) -> Any:
        def of_wanted(*some: Any) -> Any:
            given = dict(zip(wanted, some, strict=True))
            return fn(*[given.get(i, x) for i, x in enumerate(leaves)])

        return jax.vjp(of_wanted, *[leaves[i] for i in wanted])

    def backward(pull: Any, *slopes: Any) -> Any:
        none = jax.dtypes.float0  # the type of what integers have for a gradient
        return pull([s if is_inexact(s.dtype) else np.zeros(s.shape, none) for s in slopes])

    def is_inexact(dtype: Any) -> bool:
        return jax.numpy.issubdtype(dtype, jax.numpy.inexact)

    both, pulled, tree = derived(forward), derived(backward), jax.tree_util

    class ByJax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *leaves: Any) -> Any:
            results, pull = both(*leaves)
            kept, ctx.pull = tree.tree_flatten(pull)
            ctx.save_for_backward(*kept)
            ctx.mark_non_differentiable(*[t for t in results if not is_float(t)])
            ctx.count = len(leaves)
            return tuple(results)

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *slopes: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            pull = tree.tree_unflatten(ctx.pull, ctx.saved_tensors)
            grads = pulled(pull, *[conjugate(s) for s in slopes])
            found = dict(zip(wanted, map(conjugate, grads), strict=True))
            return tuple([found.get(i) for i in range(ctx.count)])

    return ByJax.apply


def conjugate(slope: torch.Tensor) -> torch.Tensor:
    """JAX's gradients are the conjugates of torch's."""
    return slope.conj().resolve_conj()
