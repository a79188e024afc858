"""Floats that a program is called with, or makes of sizes, as tensors.

torch.compile frees a float that changes, and batch norm in training divides by a number of rows.

Dynamo passes such a float as a tensor, reads its number, and computes with a SymFloat. Arithmetic
with it as it is given, and comparisons, get the tensor: a new temperature compiles nothing. All
else gets the number, which Dynamo then guards: of an expression too, whose algebra is sympy's.
"""

# This file reaches into torch: its dispatcher has no public names for all of it.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import guard_scalar
from torch.utils._pytree import tree_map_only
from torch.utils._sympy.functions import FloatTrueDiv, IntTrueDiv

aten = torch.ops.aten
# Ops that give with a tensor what they give with its number, which others take special cases of.
EXACT = ("add", "sub", "mul", "div", "gt", "ge", "lt", "le", "eq", "ne")
OPS: Mapping[type, OpOverload] = {
    sympy.Add: aten.add.Tensor,
    FloatTrueDiv: aten.div.Tensor,
    IntTrueDiv: aten.div.Tensor,
}


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
        free = {i: a for i, a in enumerate(args) if isinstance(a, torch.SymFloat)}
        takes = name in EXACT and not any(d.is_complex for d in dtypes)
        held = {i: self._tensor(a.node.expr, a.node.shape_env) for i, a in free.items() if takes}
        tensors = {i: tensor for i, tensor in held.items() if tensor is not None}
        if not tensors:
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

    def _tensor(self, expr: Any, shape_env: Any) -> torch.Tensor | None:
        """What holds a float; None for one whose algebra may have rounded otherwise than Python.

        Quotients of integers, or of these beside an integer, are not changed by sympy's rules.
        """
        if expr in self.held:
            return self.held[expr]
        made: Any = {"dtype": torch.float64}
        if expr.is_Float:
            return self.record(aten.scalar_tensor.default, (float(expr),), made)
        if expr.is_integer and expr.free_symbols <= shape_env.backed_var_to_val.keys():
            size = int(expr) if expr.is_Integer else shape_env.create_symintnode(expr, hint=None)
            return self.record(aten.scalar_tensor.default, (size,), made)
        op = OPS.get(type(expr))
        sums = op is aten.add.Tensor and not any(a.is_Float and float(a) % 1 for a in expr.args)
        if op is None or len(expr.args) != 2 or not (sums or op is aten.div.Tensor):
            return None
        parts = [self._tensor(a, shape_env) for a in expr.args]
        return None if any(p is None for p in parts) else self.record(op, tuple(parts), {})

    def _cast(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x if x.dtype is dtype else self.record(aten._to_copy.default, (x,), {"dtype": dtype})
