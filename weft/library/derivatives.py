"""Operators by which a program says what is differentiated: weft.grad and its kin call them.

v = torch.ops.weft.variable(x, 0)                # x, by which gradients are taken
(g,) = torch.ops.weft.gradient(loss, [v])        # the gradient of loss by v
They mean something to weft's own compiler alone: where torch runs a gradient, that is an error.
"""

# pyright: reportPrivateUsage=false

from collections.abc import Callable, Sequence
from typing import Any

import torch

from weft.core.errors import CaptureError

Tensors = Sequence[torch.Tensor]
LIBRARY = torch.library.Library("weft", "FRAGMENT")
ITSELF = -1  # the number of a variable that is x wherever it is read


def _copy(x: torch.Tensor, number: int = 0) -> torch.Tensor:
    return x.clone()


def _second(x: torch.Tensor, y: torch.Tensor, *, number: int) -> torch.Tensor:
    return y.clone()


def _copies(first: Tensors, *_: Tensors) -> list[torch.Tensor]:
    return [x.clone() for x in first]


def _variable(x: torch.Tensor, number: int) -> torch.Tensor:
    if not x.is_floating_point():
        raise TypeError(f"weft.grad differentiates by floating-point tensors, not {x.dtype}")
    return x.clone()


def _gradient(y: torch.Tensor, xs: Tensors) -> list[torch.Tensor]:
    if y.dim() or not y.is_floating_point():
        told = f"{y.dtype}{list(y.shape)}"
        raise TypeError(f"weft.grad differentiates a float tensor without axes, not {told}")
    if y.device.type != "meta":
        told = "the function is not one graph, so weft.grad cannot see all of it; `reasons` of the"
        raise CaptureError(f"{told} compiled function say why")
    return [torch.empty_like(x) for x in xs]


def _define(schema: str, kernel: Callable[..., Any]) -> None:
    """An operator; torch takes its results for such that want gradients, where these are on."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")

    def wanted(*args: Any, **named: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            out = getattr(torch.ops.weft, name).default(*args, **named)
        if torch.is_grad_enabled():
            for t in out if isinstance(out, list) else [out]:
                if t.is_floating_point():
                    t.requires_grad_()
        return out

    LIBRARY.impl(name, wanted, "Autograd")


_define("variable(Tensor x, int number) -> Tensor", _variable)
_define("result(Tensor x) -> Tensor", _copy)
_define("stop(Tensor x) -> Tensor", _copy)
_define("cotangent(Tensor y, int number) -> Tensor", _copy)
_define("straight_through(Tensor x, Tensor y, *, int number) -> Tensor", _second)
_define("gradient(Tensor y, Tensor[] xs) -> Tensor[]", _gradient)
EACH = "Tensor[] results, Tensor[] cotangents, Tensor[] inputs, Tensor[] gradients"
_define(f"custom({EACH}) -> Tensor[]", _copies)
