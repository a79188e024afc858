"""FX graphs in which weft takes gradients: their marks, and gradients that the program gives.

differentiates(graph)                  # whether weft.grad was called where it was traced
custom(tracer, steps, forward, backward, x)     # an autograd.Function, with its own gradient
"""

# pyright: reportPrivateUsage=false

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch._functorch.autograd_function import autograd_function_apply
from torch.utils._pytree import tree_leaves

import weft.library.derivatives  # noqa: F401  # pyright: ignore[reportUnusedImport]  # operators
from weft.core.errors import CaptureError
from weft.frontend.aten_gradients import OWN
from weft.frontend.composites import switched
from weft.frontend.parts import FX
from weft.frontend.tracer import Tracer

OPERATORS = torch.ops.weft
CUSTOM: Any = autograd_function_apply
GRADIENTS = {OPERATORS.gradient, OPERATORS.gradient.default}
ENDS = {*GRADIENTS, OPERATORS.result, OPERATORS.result.default}  # torch's gradients pass no further
NUMBERED = {OPERATORS.variable, OPERATORS.variable.default, OPERATORS.cotangent}
Body = Callable[[FX], torch.fx.Interpreter]


def differentiates(graph: FX) -> bool:
    graphs = (m for m in graph.modules() if isinstance(m, FX))
    return any(n.target in GRADIENTS for g in graphs for n in g.graph.nodes)


def passes_torchs(graph: FX, inputs: Sequence[Any]) -> bool:
    """Whether a result has a gradient of torch's by an input that wants one."""
    wants = {i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad}
    places = graph.graph.find_nodes(op="placeholder")
    reached = {n for i, n in enumerate(places) if i in wants}
    for n in graph.graph.nodes:
        value = n.meta.get("example_value")
        constant = isinstance(value, torch.Tensor) and not value.requires_grad
        if n.target not in ENDS and not constant and reached & {*n.all_input_nodes}:
            reached.add(n)
    return graph.graph.output_node() in reached


def is_mark(target: Any) -> bool:
    return target in ENDS or target in NUMBERED


def marked(tracer: Tracer, target: Any, args: Any) -> Any:
    """Record a mark; a variable has a number of its own."""
    op = getattr(target, "default", target)
    if target in NUMBERED and args[1] >= 0:
        args = (args[0], _count(tracer))
    with torch.no_grad():
        return tracer.record(op, tuple(args), {})


def _count(tracer: Tracer) -> int:
    tracer.marks += 1
    return tracer.marks - 1


def own_gradients(tracer: Tracer) -> dict[Any, Callable[..., Any]]:
    """By operator, what records a call of it with the gradient that `OWN` has for it."""
    return {op: partial(_with_own, tracer, backward) for op, backward in OWN.items()}


def _with_own(
    tracer: Tracer, backward: Callable[..., Any], op: Any, args: Any, kwargs: dict[str, Any]
) -> Any:
    if not args[0].is_floating_point():
        return _alone(tracer, op, args, kwargs)
    several = [i for i, x in enumerate(args) if isinstance(x, torch.Tensor)]
    floats = [i for i in several if args[i].is_floating_point()]
    named = {i: marked(tracer, OPERATORS.variable, (args[i], 0)) for i in floats}
    args = tuple(named.get(i, x) for i, x in enumerate(args))
    before, tracer.own = tracer.own, {}
    try:
        out = tracer.record(op, args, kwargs)
        y = out[0] if isinstance(out, tuple) else out
        g = marked(tracer, OPERATORS.cotangent, (y, 0))
        with tracer, torch.enable_grad():
            found = backward(g, y, *args, **kwargs)
    finally:
        tracer.own = before
    if found is None:
        return _alone(tracer, op, args, kwargs)
    grads = found if isinstance(found, list) else [found]
    made = marked(tracer, OPERATORS.custom, ([y], [g], [*named.values()][: len(grads)], grads))[0]
    return (made, *out[1:]) if isinstance(out, tuple) else made


def _alone(tracer: Tracer, op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The call by itself, with the gradients of its parts."""
    before, tracer.own = tracer.own, {}
    try:
        return tracer.record(op, args, kwargs)
    finally:
        tracer.own = before


def custom(tracer: Tracer, steps: Body, forward: FX, backward: FX, *given: Any, **_: Any) -> Any:
    """What forward(*given) gives: results, and what backward(*gradients, *saved) reads of it.

    Its gradients are those that `backward` gives, which has one for each of `given` or None.
    """
    is_float = [isinstance(x, torch.Tensor) and x.is_floating_point() for x in given]
    pairs = zip(given, is_float, strict=True)
    inputs = [marked(tracer, OPERATORS.variable, (x, 0)) if f else x for x, f in pairs]
    with switched(lambda: tracer.through, partial(setattr, tracer, "through"), True):
        out, saved = steps(forward).run(*inputs)
        results = [y for y in tree_leaves(out) if isinstance(y, torch.Tensor)]
        cotangents = [marked(tracer, OPERATORS.cotangent, (y, 0)) for y in results]
        found = steps(backward).run(*cotangents, *saved)
        wanted = [*zip(inputs, found, strict=False)]
        wanted = [
            (x, g) for (x, g), f in zip(wanted, is_float, strict=False) if f and g is not None
        ]
        for x, g in wanted:
            if g.shape != x.shape:
                told = f"a custom gradient of shape {list(g.shape)} for one of {list(x.shape)}"
                raise CaptureError(told)
        grads = [g.to(x.dtype) for x, g in wanted]
        parts = [results, cotangents, [x for x, _ in wanted], grads]
        made = marked(tracer, OPERATORS.custom, parts)
    return made[0] if isinstance(out, torch.Tensor) else type(out)(made)
