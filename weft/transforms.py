"""Gradients as functions: weft.grad, weft.value_and_grad, and functions that give their own.

g = weft.grad(loss)                       # g(w, x): the gradient of loss(w, x) by w, compiled
h = weft.grad(lambda w, x: g(w, x).sum()) # and that of the gradient
value, grads = weft.value_and_grad(loss, argnums=(0, 1))(w, x)

weft differentiates its own tensor program, not torch's autograd: see tensor/grad.py.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from weft.calling import Compiled, compiled
from weft.driver import Builder
from weft.library.derivatives import ITSELF
from weft.options import Options

OPERATORS = torch.ops.weft


def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **options: Any
) -> Any:
    """A function of the gradient of f's result, a float tensor without axes, by some arguments.

    f        a function of tensors, of lists and dicts of them, and of modules; or compiled already
    argnums  which positional arguments it is differentiated by: a number gives the gradient alone,
             several a tuple. A gradient is like its argument: a tensor for a tensor, a list for a
             list, and for a module a dict of the gradients of its parameters that require one
    has_aux  f gives (result, more); then the new function gives (gradient, more)
    options  those of weft.compile

    It is compiled for each signature, as by weft.compile, has `ir` and `report`, and is a function
    that can be differentiated again. Ties are torch's. `detach`, torch.no_grad() and the backward
    of a torch.autograd.Function (or weft.custom_gradient) mean what they do in torch. Results want
    no gradient of torch's. What f writes to an argument that it is differentiated by stays inside.
    CaptureError where f is not one graph, UnsupportedOpError where something in it has no gradient.
    """
    both = _both(f, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, found = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient if is_compiling() else _compiled(gradient, f, options)


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **options: Any
) -> Any:
    """As `grad`, a function of (result, gradient); with `has_aux` of ((result, more), gradient)."""
    both = _both(f, argnums, has_aux)
    return both if is_compiling() else _compiled(both, f, options)


def _both(f: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool) -> Callable[..., Any]:
    """The function of value and gradient, in operators that mean something where it is compiled."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        outer = torch.is_grad_enabled()
        with torch.enable_grad():
            given: list[Any] = list(args)
            variables: list[Any] = []
            for number in numbers:
                given[number], found = _variables(args[number])
                variables.append(found)
            value = f(*given, **kwargs)
            leaves, tree = tree_flatten(variables)
            grads = OPERATORS.gradient(value[0] if has_aux else value, leaves)
            value = tree_map_only(torch.Tensor, OPERATORS.result, value)
            found = tree_unflatten(grads, tree)
            out = value, found[0] if isinstance(argnums, int) else tuple(found)
        return out if outer else tree_map_only(torch.Tensor, torch.Tensor.detach, out)

    return value_and_gradient


def _variables(x: Any) -> tuple[Any, Any]:
    """An argument in which tensors are variables, and these: of a module its parameters by name."""
    if isinstance(x, torch.nn.Module):
        named = {name: p for name, p in x.named_parameters() if p.requires_grad}
        return x, {name: OPERATORS.variable(p, ITSELF) for name, p in named.items()}
    given = tree_map_only(torch.Tensor, lambda t: OPERATORS.variable(t, 0), x)
    return given, given


def _compiled(fn: Callable[..., Any], f: Callable[..., Any], options: dict[str, Any]) -> Compiled:
    sizes = options.pop("sizes", None)
    return compiled(functools.wraps(f)(fn), Builder(Options.of(options), sizes, one_graph=True))


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a gradient of its own: a decorator.

        @weft.custom_gradient
        def rounded(x):                    # to gradients it is the identity: straight through
            return x.round(), lambda g: g

    `f` gives its result, a tensor or a tuple of tensors, and a function from their gradients to a
    gradient for each of f's arguments: of its shape, or None. What this function does with tensors
    is differentiated in its turn for gradients of gradients. Both torch's autograd and weft.grad
    use it, in eager and compiled. Arguments are passed by position.
    """

    class Given(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            result, ctx.gradient = f(*args)
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return ctx.gradient(*grads)

    @functools.wraps(f)
    def call(*args: Any) -> Any:
        return Given.apply(*args)

    return call
