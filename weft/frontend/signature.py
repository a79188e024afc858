"""When a traced program may be used again: the key of a call and the guards of an entry.

key = call_key(flat, in_tree)           # shapes, strides, dtypes, modes, values of the rest
check = tensor_check([x, weight])       # check(x, weight) -> bool, about 0.1 us
state = State.of(modules)               # state.valid(): still the modules that were traced
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import TreeSpec

try:
    from torch._C._dynamo.guards import TensorGuards
except ImportError:  # torch's own guard, in C++; without it the same in Python
    TensorGuards = None

from weft.frontend.capture import CONSTANTS

Check = Callable[..., bool]


def call_key(flat: Sequence[Any], in_tree: TreeSpec) -> tuple[Any, ...]:
    gradients = torch.is_grad_enabled()
    leaves = tuple(_leaf_key(leaf, gradients) for leaf in flat)
    modes = (gradients, torch.get_default_dtype(), *autocasts())
    return (in_tree, leaves, _sharing(flat), modes)


def autocasts() -> tuple[torch.dtype | None, ...]:
    """What each kind of device casts to, None where it does not."""
    kinds = ("cpu", "cuda")
    return tuple(
        torch.get_autocast_dtype(k) if torch.is_autocast_enabled(k) else None for k in kinds
    )


def _leaf_key(leaf: Any, gradients: bool) -> Any:
    if isinstance(leaf, torch.Tensor):
        return tensor_key(leaf, gradients)
    if isinstance(leaf, (float, complex)):  # repr tells -0.0 from 0.0 and lets nan equal nan
        return type(leaf), repr(leaf)
    return (type(leaf), leaf) if isinstance(leaf, CONSTANTS) else type(leaf)


def tensor_key(t: torch.Tensor, gradients: bool) -> tuple[Any, ...]:
    strides = t.stride() if t.layout is torch.strided else None
    return type(t), t.shape, strides, t.dtype, t.device, gradients and t.requires_grad


def _sharing(flat: Sequence[Any]) -> tuple[Any, ...]:
    """Which inputs lie in one storage, and where; empty in the plain case."""
    tensors = [t for t in flat if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    storages = [t.untyped_storage()._cdata for t in tensors]
    if len(set(storages)) == len(storages):
        return ()
    first = {s: t.storage_offset() for s, t in reversed([*zip(storages, tensors, strict=True)])}
    return tuple(
        (storages.index(s), t.storage_offset() - first[s])
        for s, t in zip(storages, tensors, strict=True)
    )


def tensor_check(tensors: Sequence[torch.Tensor]) -> Check | None:
    """A function that tells whether tensors look as these do; None where they are not distinct."""
    if len({id(t) for t in tensors}) != len(tensors):
        return None
    if not tensors:
        return lambda: True
    make: Any = TensorGuards  # its stub has the wrong types
    sizes = [[*t.shape] for t in tensors]
    strides = [[*t.stride()] for t in tensors]
    with suppress(TypeError, ValueError, RuntimeError):
        guards = make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
        if guards.check(*tensors):
            return guards.check
    wanted = [tensor_key(t, torch.is_grad_enabled()) for t in tensors]

    def check(*given: torch.Tensor) -> bool:
        return [tensor_key(t, torch.is_grad_enabled()) for t in given] == wanted

    return check


@dataclass(frozen=True)
class State:
    """What the modules of a program were: children, training flags, tensors' shapes."""

    children: tuple[tuple[dict[str, Any], list[Any]], ...]
    training: tuple[tuple[dict[str, Any], bool], ...]
    homes: tuple[tuple[dict[str, Any], str], ...]
    check: Check | None

    @staticmethod
    def of(
        modules: Sequence[torch.nn.Module], homes: Sequence[tuple[dict[str, Any], str]]
    ) -> State:
        inner = {id(m): m for root in modules for m in root.modules()}.values()
        return State(
            tuple((m._modules, [*m._modules.values()]) for m in inner if m._modules),
            tuple((m.__dict__, m.training) for m in inner),
            tuple(homes),
            tensor_check([home[key] for home, key in homes]),
        )

    def valid(self) -> bool:
        if self.check is None or not self.same_modules():
            return False
        try:
            return self.check(*[home[key] for home, key in self.homes])
        except (KeyError, TypeError):  # a parameter was removed, or set to None
            return False

    def same_modules(self) -> bool:
        modes = all(attributes["training"] is flag for attributes, flag in self.training)
        return modes and all([*live.values()] == old for live, old in self.children)
