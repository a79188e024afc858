"""Floats that a program is called with, as tensors: torch.compile frees one that changes.

Dynamo passes such a float as a tensor, reads its number, and computes with a SymFloat. Arithmetic
with it as it is given, and comparisons, get the tensor: a new temperature compiles nothing. All
else gets the number, which Dynamo then guards: of an expression too, whose algebra is sympy's.
"""

# This file reaches into torch: its dispatcher has no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import guard_scalar
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten
# Ops that give with a tensor what they give with its number, which others take special cases of.
EXACT = ("add", "sub", "mul", "div", "gt", "ge", "lt", "le", "eq", "ne")


def is_free(value: Any) -> bool:
    """Whether it is a float that Dynamo has freed, and still takes guards of."""
    return isinstance(value, torch.SymFloat) and not value.node.shape_env.frozen  # type: ignore[union-attr]


class Floats:
    """The tensors that hold the floats of one trace; `record` adds a call to it."""

    def __init__(self, record: Callable[..., Any]) -> None:
        self.record = record
        self.held: dict[Any, torch.Tensor] = {}  # by symbol

    def take(self, item: torch.fx.Node, source: torch.fx.Node, tensor: torch.Tensor) -> bool:
        """Note what holds the number that `item` reads, if it is a float that only ops take."""
        given = getattr(source.meta.get("grapharg"), "pass_arg_as_tensor", False)
        results = [user.meta.get("example_value") for user in item.users]
        taken = given and all(isinstance(r, torch.Tensor) for r in results)
        if taken:
            self.held[item.meta["example_value"].node.expr] = tensor
        return taken

    def call(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """The call, which gives something like `out`, with tensors for floats where it can."""
        name, _, overload = str(op).removeprefix("aten.").partition(".")
        dtypes = {a.dtype for a in args if isinstance(a, torch.Tensor)}
        held = [isinstance(a, torch.SymFloat) and self.held.get(a.node.expr) for a in args]
        tensors = {i: h for i, h in enumerate(held) if isinstance(h, torch.Tensor)}
        if name not in EXACT or not tensors or any(d.is_complex for d in dtypes):
            args, kwargs = tree_map_only(torch.SymFloat, guard_scalar, (args, kwargs))
            return self.record(op, args, kwargs)
        double = torch.float64 in {*dtypes, torch.get_default_dtype()}
        dtype = torch.float64 if double else torch.float32  # that torch computes in with a number
        args = tuple(
            self._cast(tensors[i], dtype) if i in tensors else a for i, a in enumerate(args)
        )
        args, kwargs = tree_map_only(torch.SymFloat, guard_scalar, (args, kwargs))
        op = getattr(getattr(aten, name), overload.replace("Scalar", "Tensor"))
        return self._cast(self.record(op, args, kwargs), out.dtype)

    def _cast(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x if x.dtype is dtype else self.record(aten._to_copy.default, (x,), {"dtype": dtype})
