"""Floats that a program is called with, as tensors of no dimensions: Dynamo frees one that changes.

Dynamo passes such a float as a tensor, reads its number, and computes with a SymFloat. Where an op
takes that for a tensor, or has an overload that does, it is given the tensor: a new temperature
compiles nothing. Any other op gets the number, which Dynamo then guards.
"""

# This file reaches into torch: its dispatcher has no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, reduce
from typing import Any

import sympy
import torch
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import guard_scalar
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils._sympy.functions import FloatPow, FloatTrueDiv

from weft.frontend.schema import overloads

aten = torch.ops.aten
FLOAT64 = {"dtype": torch.float64}
RULES: Mapping[type, OpOverload] = {
    sympy.Add: aten.add.Tensor,
    sympy.Mul: aten.mul.Tensor,
    sympy.Pow: aten.pow.Tensor_Tensor,
    FloatPow: aten.pow.Tensor_Tensor,
    FloatTrueDiv: aten.div.Tensor,
}


class Floats:
    """The tensors that hold the floats of one trace; `record` adds a call to it."""

    def __init__(self, record: Callable[..., Any]) -> None:
        self.record = record
        self.held: dict[Any, torch.Tensor] = {}  # by expression

    def take(self, value: Any, tensor: torch.Tensor) -> bool:
        """Note what holds a number, if it is a float that Dynamo still takes guards of."""
        free = isinstance(value, torch.SymFloat) and not value.node.shape_env.frozen  # pyright: ignore
        if free:
            self.held[value.node.expr] = tensor
        return free

    def call(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """The call, which gives something like `out`, with tensors for floats where it can."""
        double = any(getattr(a, "dtype", None) is torch.float64 for a in tree_leaves(args))
        dtype = torch.float64 if double else torch.float32  # that torch computes in with a number
        floats = tuple(isinstance(a, torch.SymFloat) and self._holds(a) for a in args)
        other = _with_tensors(op, floats)
        if other is not None:
            pairs = zip(args, floats, strict=True)
            op, args = other, tuple(self._of(a, dtype) if free else a for a, free in pairs)
        args, kwargs = tree_map_only(torch.SymFloat, guard_scalar, (args, kwargs))
        return self._cast(self.record(op, args, kwargs), out.dtype)

    def _cast(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x if x.dtype is dtype else self.record(aten._to_copy.default, (x,), {"dtype": dtype})

    def _holds(self, value: torch.SymFloat) -> bool:
        """Whether the float follows from those that tensors hold, by ops that tensors have."""
        parts = [*sympy.preorder_traversal(value.node.expr)]
        return all(e in self.held or e.is_number or type(e) in RULES for e in parts)

    def _of(self, value: torch.SymFloat, dtype: torch.dtype) -> torch.Tensor:
        return self._cast(self._value(value.node.expr), dtype)

    def _value(self, expr: Any) -> torch.Tensor:
        """The value of an expression, in float64, as Python computes it."""
        if expr not in self.held and expr.is_number:
            self.held[expr] = self.record(aten.full.default, ([], float(expr)), FLOAT64)
        elif expr not in self.held:
            op, parts = RULES[type(expr)], [self._value(e) for e in expr.args]
            self.held[expr] = reduce(lambda x, y: self.record(op, (x, y), {}), parts)
        return self.held[expr]


def _name(op: OpOverload) -> str:
    return op._schema.name.removeprefix("aten::")


@cache
def _with_tensors(op: OpOverload, floats: tuple[bool, ...]) -> OpOverload | None:
    """The overload with tensors in these places, and all else as this one has it."""
    own = [str(a.type) for a in op._schema.arguments]
    wanted = ["Tensor" if free else kind for kind, free in zip(own, floats, strict=False)]
    wanted += own[len(floats) :]
    for other in (op, *overloads(getattr(aten, _name(op)))):
        kinds = [str(a.type) for a in other._schema.arguments]
        kinds = [k.replace("Optional[Tensor]", "Tensor") for k in kinds]
        if any(floats) and kinds == wanted:
            return other
    return None
