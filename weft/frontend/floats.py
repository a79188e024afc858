"""Floats that a program is called with, or makes of sizes, as tensors.

Dynamo frees a float that changes, and batch norm in training divides by a number of rows.

Such a float is passed as a tensor, whose number is read and computed with as a SymFloat. What
gives with a tensor what it gives with its number gets the tensor: a new temperature compiles
nothing. All else gets the number, which Dynamo then guards.
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
from torch.utils._sympy.functions import FloatTrueDiv, IntTrueDiv, ToFloat

from weft.frontend.extents import scaled_exactly

aten = torch.ops.aten
# Ops that give with a tensor what they give with its number; others take special cases of it.
ARITHMETIC = ("add", "sub", "mul", "div", "gt", "ge", "lt", "le", "eq", "ne")
SELECTING = ("masked_fill", "clamp", "clamp_min", "clamp_max", "lerp")
FILLING = ("fill", "full", "full_like", "new_full", "scalar_tensor")
OPS: Mapping[type, OpOverload] = {
    sympy.Add: aten.add.Tensor,
    sympy.Mul: aten.mul.Tensor,
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
        taken = given and _goes_to_ops(item)
        if taken:
            self.held[item.meta["example_value"].node.expr] = tensor
        return taken

    def call(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """The call, which gives something like `out`, with tensors for floats where it can."""
        name, _, overload = str(op).removeprefix("aten.").partition(".")
        dtypes = {out.dtype, *(a.dtype for a in args if isinstance(a, torch.Tensor))}
        double = torch.float64 in {*dtypes, torch.get_default_dtype()}
        dtype = torch.float64 if double else torch.float32  # that torch computes in with a number
        if name in (*SELECTING, *FILLING) or "alpha" in kwargs:
            takes = out.dtype.is_floating_point
        else:
            takes = name in ARITHMETIC and not any(d.is_complex for d in dtypes)
        made: list[torch.Tensor] = []

        def given(value: torch.SymFloat) -> Any:
            tensor = self._tensor(value.node.expr, value.node.shape_env) if takes else None
            if tensor is None:
                return _number(value)
            made.append(self._cast(tensor, dtype))
            return made[-1]

        args, kwargs = tree_map_only(torch.SymFloat, given, (args, kwargs))
        if not made:
            return self.record(op, args, kwargs)
        if name in FILLING:
            blank = self.record(op, (*args[:-1], 0.0), kwargs)
            return self.record(aten.fill.Tensor, (blank, made[0]), {})
        if name in SELECTING:
            args = tuple(self._operand(a, dtype) for a in args)
        elif isinstance(kwargs.get("alpha"), torch.Tensor):
            factors = (kwargs["alpha"], self._operand(args[1], dtype))
            args, kwargs = (args[0], self.record(aten.mul.Tensor, factors, {})), {}
        form = overload.replace("Scalar", "Tensor").replace("default", "Tensor")
        return self._cast(self.record(getattr(getattr(aten, name), form), args, kwargs), out.dtype)

    def _tensor(self, expr: Any, shape_env: Any) -> torch.Tensor | None:
        """What holds a float; None for one whose algebra may have rounded otherwise than Python.

        Dynamo computes one operation with a float. Of sizes, quotients of integers, or of these
        beside an integer, are not changed by sympy's rules; nor are products that are exact.
        """
        if expr in self.held:
            return self.held[expr]
        if isinstance(expr, ToFloat):
            return self._tensor(expr.args[0], shape_env)
        if expr.is_Float:
            return self._operand(float(expr), torch.float64)
        if expr.is_integer and expr.free_symbols <= shape_env.backed_var_to_val.keys():
            size = int(expr) if expr.is_Integer else shape_env.create_symintnode(expr, hint=None)
            return self._operand(size, torch.float64)
        op, freed = OPS.get(type(expr)), expr.free_symbols & self.held.keys()
        if op is aten.div.Tensor and expr.args[1].as_coeff_Mul()[1] == expr.args[0]:
            ratio = scaled_exactly(expr.args[1], shape_env)  # x / (1.5 * x), of a size x
            return ratio and self._operand(ratio[1] / ratio[0], torch.float64)
        sums = op is aten.add.Tensor and not any(a.is_Float and float(a) % 1 for a in expr.args)
        exact = op is aten.mul.Tensor and scaled_exactly(expr, shape_env)
        held = freed or sums or exact or op is aten.div.Tensor
        if op is None or len(expr.args) != 2 or not held:
            return None
        parts = [self._tensor(a, shape_env) for a in expr.args]
        return None if any(p is None for p in parts) else self.record(op, tuple(parts), {})

    def _operand(self, value: Any, dtype: torch.dtype) -> Any:
        """A number as a tensor, and a tensor of floats in that dtype."""
        if isinstance(value, torch.Tensor):
            return self._cast(value, dtype) if value.is_floating_point() else value
        made = {"dtype": dtype}
        return value if value is None else self.record(aten.scalar_tensor.default, (value,), made)

    def _cast(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x if x.dtype is dtype else self.record(aten._to_copy.default, (x,), {"dtype": dtype})


def _number(value: torch.SymFloat) -> Any:
    """The number, guarded; of sizes by theirs, for a quotient of theirs is guarded inexactly."""
    shape_env: Any = value.node.shape_env
    for size in value.node.expr.free_symbols & shape_env.backed_var_to_val.keys():
        if size.is_integer:
            guard_scalar(shape_env.create_symintnode(size, hint=None))
    return guard_scalar(value)


def _goes_to_ops(number: torch.fx.Node) -> bool:
    """Whether ops that give tensors take a number, and those of numbers that only go there."""
    for user in number.users:
        result = user.meta.get("example_value")
        on = isinstance(result, torch.SymFloat) and _goes_to_ops(user)
        if not (isinstance(result, torch.Tensor) or on):
            return False
    return True
