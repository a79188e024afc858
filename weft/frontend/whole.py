"""Keeps ops that have rows whole where torch's Python dispatcher would take them apart.

with whole_ops():
    F.interpolate(x, scale_factor=2)    # one op, and its backward another, for AOTAutograd too
Before autograd it is gathers, whose gradient is a scatter. The dispatcher is on where sizes are
free, and in all that comes through Dynamo.
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import meta_table
from torch._decomp.decompositions import upsample_compute_output_size
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format

from weft.frontend.aten.rows import LOWER
from weft.library.calls import operator

BEFORE_AUTOGRAD = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


@contextmanager
def whole_ops() -> Generator[None]:
    before: list[tuple[OpOverload, dict[Any, Any]]] = []
    try:
        for op, own in _taken_apart().items():
            kernels = op.py_kernels
            before.append((op, {k: kernels.pop(k) for k in BEFORE_AUTOGRAD if k in kernels}))
            kernels.update(dict.fromkeys(before[-1][1], own) if own else {})
            op._dispatch_cache.clear()
        yield
    finally:
        for op, kernels in before:
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


@cache
def _taken_apart() -> dict[OpOverload, Callable[..., Any] | None]:
    """Ops with rows that Python takes apart, and what does so instead: nothing, but for `vec`."""
    named = [operator(name) for name in LOWER if name.startswith("aten.")]
    found = [op for op in named if DispatchKey.Autograd in op.py_kernels]
    packets = [getattr(torch.ops.aten, op._schema.name.split("::")[1]) for op in named]
    by_scale = {p.vec: partial(_of_size, p.default) for p in packets if "vec" in p.overloads()}
    return {**dict.fromkeys(found), **by_scale}


def _gradient_shape(g: torch.Tensor, size: Any, shape: Any, *how: Any) -> torch.Tensor:
    """Of interpolation: C++'s shape function takes no free sizes, and Python has none."""
    return g.new_empty(shape).contiguous(memory_format=suggest_memory_format(g))


for name in LOWER:
    if "upsample" in name and "_backward" in name and operator(name) not in meta_table:
        meta_table[operator(name)] = _gradient_shape
        operator(name).py_impl(DispatchKey.Meta)(_gradient_shape)


def _of_size(op: OpOverload, x: torch.Tensor, size: Any, *how: Any) -> torch.Tensor:
    """The op of a size or of scales, as one of a size."""
    *align, scales = how
    size = upsample_compute_output_size(x.shape, size, scales)
    return op(x, size, *align, *(scales or [None] * len(size)))
