"""The gradient of a product: of all elements by one quotient each, right where some are 0.

with Products():
    x.prod(1)      # traced where gradients are wanted: its own multiplies the others of each row
Traced, torch's own takes the products before and after each element, which are two scans. A product
is taken in f64, which holds those of a few f32 that f32 does not; quotients of it are as torch's
where it finds no 0.
"""

# pyright: reportPrivateUsage=false

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

FUNCTIONS = torch.prod, torch.Tensor.prod


class Product(torch.autograd.Function):
    """Product.apply(x, dim, keepdim): of all axes where `dim` is None."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int | None, keep: bool) -> torch.Tensor:  # pyright: ignore
        ctx.save_for_backward(x)
        ctx.how = dim, keep
        return _product(x, dim, keep)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:  # pyright: ignore
        (x,), (dim, keep) = ctx.saved_tensors, ctx.how
        if torch.is_grad_enabled():  # a second derivative may follow, which quotients have not
            with torch.enable_grad():
                y = _product(x, dim, keep)
            return *torch.autograd.grad(y, x, g, create_graph=True), None, None
        g = g.unsqueeze(dim) if dim is not None and x.dim() and not keep else g
        return g * others(x, dim).to(x.dtype), None, None


def _product(x: torch.Tensor, dim: int | None, keep: bool) -> torch.Tensor:
    return torch.prod(x) if dim is None else torch.prod(x, dim, keep)


def others(x: torch.Tensor, dim: int | None) -> torch.Tensor:
    """For each element the product of the others, in f64: 0 where one of these is, or NaN."""
    axes = [*range(x.dim())] if dim is None else [dim]
    zero = x == 0
    zeros = zero.float()
    count = zeros.sum(axes, keepdim=True) if axes else zeros
    plain = torch.where(zero, 1, x).double()
    whole = plain.prod() if dim is None else plain.prod(dim, keepdim=True)
    odd = (~x.isfinite()).float()
    odds = odd.sum(axes, keepdim=True) if axes else odd
    return torch.where(count == zeros, whole / plain, torch.where(odds > odd, torch.nan, 0.0))


def product(*args: Any, **kwargs: Any) -> torch.Tensor:
    """torch.prod, with a gradient of its own where one is wanted."""
    if not args:  # what is multiplied has a name
        return torch.prod(**kwargs)
    x, *args = args  # type: ignore[assignment]
    wanted = torch.is_grad_enabled() and isinstance(x, torch.Tensor) and x.requires_grad
    names = dict(zip(("dim", "keepdim", "dtype"), args, strict=False), **kwargs)
    plain = names.keys() <= {"dim", "keepdim"} and isinstance(names.get("dim"), int | None)
    transformed = torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore
    if not wanted or transformed or not x.is_floating_point() or not plain:
        return torch.prod(x, *args, **kwargs)
    return Product.apply(x, names.get("dim"), bool(names.get("keepdim")))  # type: ignore[return-value]


class Products(TorchFunctionMode):
    """Products have the gradient of this file."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return (product if func in FUNCTIONS else func)(*args, **(kwargs or {}))
