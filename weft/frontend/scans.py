"""torch's scan over time, recorded as one recurrence; so is its gradient, where a step is traced.

carry, ys = scan(combine, init, xs)      # traced: a node, whose body is a graph

A body is traced for one iteration, by a tracer of its own. Its gradient computes it again from what
each iteration was given, which torch's own keeps copies of, views of weights too.
"""

# This file reaches into torch: its dispatcher has no public names for all of it.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.utils import materialize_as_graph
from torch.utils._pytree import tree_leaves

from weft.core.errors import CaptureError
from weft.core.node import Graph, make
from weft.frontend.aliasing import read
from weft.frontend.composites import tracing
from weft.frontend.extents import is_symbolic
from weft.frontend.tracer import Tracer
from weft.library.recurrent import taken_apart
from weft.tensor.ops import Part
from weft.tensor.recurrence import Recurrence

Tensors = Sequence[torch.Tensor]
Combine = Callable[..., Any]
DRAWS = "a scan whose body has tensors of its own, or draws random numbers"


@scan_op.py_impl(Tracer)
def record(
    tracer: Tracer,
    combine: Combine,
    init: Tensors,
    xs: Tensors,
    others: Tensors,
    backward: bool = False,
) -> tuple[torch.Tensor, ...]:
    """One node; CaptureError for a body that is more than a function of tensors."""
    count, given = xs[0].shape[0] if xs else 0, [*init, *xs, *others]
    if is_symbolic(count) or not count:
        raise CaptureError("a scan of a free number of steps, or of none")
    fakes, slices = [tracer.fake(t) for t in given], range(len(init), len(init) + len(xs))
    shapes = [t.shape[i in slices :] for i, t in enumerate(fakes)]
    body, results = _body(tracer, combine, fakes, shapes)
    op = Recurrence(count, len(init), len(xs), backward, body)
    node = make(op, *(read(tracer.ref(t), tracer.emit) for t in given))
    outs: list[torch.Tensor] = []
    for i, out in enumerate(results):
        shape = out.shape if i < len(init) else (count, *out.shape)
        outs.append(_empty(tracer, shape, out))
        tracer.hold(outs[-1], make(Part(i), node))
    return tuple(outs)


def _body(
    tracer: Tracer, combine: Combine, given: Tensors, shapes: Sequence[Any]
) -> tuple[Graph, list[torch.Tensor]]:
    """The body's graph, and its results as fakes."""
    inner = Tracer(tracer.fake_mode, fused_random=False)
    rows = [_empty(tracer, shape, t) for shape, t in zip(shapes, given, strict=True)]
    before, tracer.paused = tracer.paused, True
    try:
        refs = [inner.placeholder(t, f"x{i}") for i, t in enumerate(rows)]
        with tracing(inner), torch.no_grad():
            results = tree_leaves(combine(*(ref.fake for ref in refs)))
            values = [inner.value(t) for t in results]
    finally:
        tracer.paused = before
    if len(inner.placeholders) > len(given) or inner.last:
        raise CaptureError(DRAWS)
    if any(ref.storage.version for ref in refs):
        raise CaptureError("a scan whose body writes to what it is given")
    inputs = tuple(p.node for p in inner.placeholders)
    return Graph("torch", "body", inputs, tuple(values), inner.names, inner.origin), results


def _empty(tracer: Tracer, shape: Any, like: torch.Tensor) -> torch.Tensor:
    empty = torch.ops.aten.empty.memory_format
    return tracer.call(empty, (list(shape),), {"dtype": like.dtype, "device": like.device})


class Scan(torch.autograd.Function):
    """A scan and its gradient: Scan.apply(run, combine, carried, sliced, *tensors).

    `run` makes a scan without a gradient, and takes whether it goes backward.
    """

    @staticmethod
    def forward(ctx: Any, run: Combine, combine: Combine, n: int, m: int, *given: Any) -> Any:
        def held(*values: torch.Tensor) -> list[Any]:  # what is carried is stacked as well
            return [*tree_leaves(combine(*values)), *(v.clone() for v in values[:n])]

        found = run(held, given[:n], given[n : n + m], given[n + m :], False)
        ctx.save_for_backward(*given, *found[len(found) - n :])
        ctx.facts = run, combine, n, m
        return found[: len(found) - n]

    @staticmethod
    def backward(ctx: Any, *seeds: torch.Tensor) -> Any:  # pyright: ignore
        run, combine, n, m = ctx.facts
        given = ctx.saved_tensors[: len(ctx.saved_tensors) - n]
        if torch.is_grad_enabled():  # a second derivative may follow
            again = partial(_in_steps, combine, n, m)
            return *(None,) * 4, *taken_apart(again, given, seeds)
        floats = [i for i, t in enumerate(given) if t.is_floating_point()]
        kept = [i for i in floats if i < n]
        same = [i for i in floats if i >= n + m]
        stacks = [g for g in seeds[n:] if g.is_floating_point()]
        lead = len(kept) + len(same)

        def back(*values: torch.Tensor) -> list[torch.Tensor]:
            held, sums, rest = values[: len(kept)], values[len(kept) : lead], values[lead:]
            inside = [t.detach() for t in rest[len(stacks) :]]
            xs = [inside[i].requires_grad_() for i in floats]
            with torch.enable_grad():
                outs = tree_leaves(combine(*inside))
            wanted = [outs[i] for i in kept] + [t for t in outs[n:] if t.is_floating_point()]
            by = dict(zip(floats, _vjp(wanted, (*held, *rest[: len(stacks)]), xs), strict=True))
            added = [s + by[i] for s, i in zip(sums, same, strict=True)]
            return [*(by[i] for i in kept), *added, *(by[i] for i in floats if n <= i < n + m)]

        first = [*(seeds[i] for i in kept), *(torch.zeros_like(given[i]) for i in same)]
        xs = [*stacks, *ctx.saved_tensors[len(given) :], *given[n : n + m]]
        found = run(back, first, xs, given[n + m :], True)
        by = dict(zip((*kept, *same, *(i for i in floats if n <= i < n + m)), found, strict=True))
        return (*(None,) * 4, *(by.get(i) for i in range(len(given))))


def _in_steps(combine: Combine, n: int, m: int, *given: torch.Tensor) -> list[torch.Tensor]:
    """A scan as torch runs it, by a loop."""
    held, rows, others = list(given[:n]), given[n : n + m], given[n + m :]
    stacks: list[Any] = []
    for slices in zip(*rows, strict=True):
        found = tree_leaves(combine(*held, *slices, *others))
        held = found[:n]
        stacks.append(found[n:])
    return [*held, *(torch.stack(column) for column in zip(*stacks, strict=True))]


def _vjp(results: Tensors, seeds: Tensors, xs: Tensors) -> list[torch.Tensor]:
    """The gradients of xs, for results with their seeds; zeros where none passes."""
    if torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradCPU):
        raise CaptureError("a scan's gradient where torch follows none")
    pairs = [(y, g) for y, g in zip(results, seeds, strict=True) if y.requires_grad]
    if not pairs:
        return [torch.zeros_like(x) for x in xs]
    results, seeds = zip(*pairs, strict=True)
    found = torch.autograd.grad(results, xs, seeds, allow_unused=True)
    grads: list[Any] = [*found]  # None where it is unused
    return [torch.zeros_like(x) if g is None else g.clone() for x, g in zip(xs, grads, strict=True)]


def scanned(tracer: Tracer, combine: Combine, init: Tensors, xs: Tensors, others: Tensors) -> Any:
    """A scan as the tracer follows it, with its gradient where that is wanted."""
    given = (*init, *xs, *others)
    if torch.is_grad_enabled() and any(t.requires_grad for t in given):
        return Scan.apply(partial(record, tracer), combine, len(init), len(xs), *given)
    return record(tracer, combine, init, xs, others)


def _through_torch(
    combine: Combine, init: Tensors, xs: Tensors, others: Tensors, backward: bool
) -> Any:
    """torch's scan, which AOTAutograd traces, below autograd."""
    given = [x.flip(0) for x in xs] if backward else [*xs]
    body = materialize_as_graph(combine, (*init, *(x[0] for x in given), *others))
    calls = (getattr(n.target, "tags", ()) for n in body.graph.nodes)
    if any(torch.Tag.nondeterministic_seeded in tags for tags in calls):
        raise CaptureError(DRAWS)  # the gradient would draw others
    with torch._C._AutoDispatchBelowAutograd():
        found = scan_op(body, tuple(init), tuple(given), tuple(others))
    ends = found[: len(init)]
    stacks = found[len(init) :]
    return (*ends, *(y.flip(0) for y in stacks)) if backward else found


def _differentiated(combine: Combine, init: Tensors, xs: Tensors, others: Tensors) -> Any:
    given = (*init, *xs, *others)
    if torch.is_grad_enabled() and any(t.requires_grad for t in given):
        return Scan.apply(_through_torch, combine, len(init), len(xs), *given)
    with torch._C._AutoDispatchBelowAutograd():
        return scan_op(combine, init, xs, others)


@contextmanager
def own_scan_gradients() -> Generator[None]:
    """Scans are differentiated as here, not by torch: its own aliases what it keeps."""
    kernels = scan_op.py_kernels
    before = {k: f for k, f in kernels.items() if k.name.startswith("Autograd")}
    scan_op._dispatch_cache.clear()
    kernels.update(dict.fromkeys(before, _differentiated))
    try:
        yield
    finally:
        kernels.update(before)
        scan_op._dispatch_cache.clear()
