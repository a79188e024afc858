"""Which tensors of a trace share a storage, and what an in-place write does to all of them.

    y = x[0]; y.add_(1)      y -> select_1 = add(select, 1);  x -> select_scatter(x, select_1, 0, 0)

A storage is known by its root tensor; a view knows the step that makes it from its parent. A
write replaces the root's value, and a view that is read later replays its steps.
"""

# This file reaches into torch: its dispatcher and tables have no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch

from weft.core.errors import CaptureError
from weft.core.node import Node
from weft.core.types import TensorType, row_major
from weft.frontend.torch_level import TORCH_DTYPE

aten = torch.ops.aten

# emit(op, *args) adds a node and returns its only value.
Emit = Callable[..., Node]


@dataclass(eq=False)
class Storage:
    """`version` counts the writes. `placeholder` is set where the storage comes from outside."""

    version: int = 0
    placeholder: int | None = None


@dataclass(frozen=True)
class Step:
    """The view op that makes a tensor from its parent (args without it); result number `index`."""

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int


@dataclass(eq=False)
class Ref:
    """A tensor of the trace. `value` is what it held at `version` of its storage."""

    fake: torch.Tensor
    storage: Storage
    value: Node
    version: int = 0
    parent: Ref | None = None
    step: Step | None = None

    @property
    def root(self) -> Ref:
        return self if self.parent is None else self.parent.root


def read(ref: Ref, emit: Emit) -> Node:
    """The value `ref` holds now."""
    if ref.version != ref.storage.version:
        assert ref.parent is not None and ref.step is not None, "a root is always current"
        step, parent = ref.step, read(ref.parent, emit)
        # The new parent's strides may not allow a view, and which result of an op is meant matters.
        op = aten.reshape.default if step.op in RESHAPES else step.op
        ref.value = emit(op, parent, *step.args, index=step.index, **step.kwargs)
        ref.version = ref.storage.version
    return ref.value


def write(ref: Ref, value: Node, emit: Emit) -> None:
    """`ref` holds `value` from now on, and so does what it is a view of."""
    chain: list[tuple[Ref, Node]] = [(ref, value)]
    while ref.parent is not None and ref.step is not None:
        inverse = INVERSES.get(ref.step.op)
        if inverse is None:
            raise CaptureError(f"an in-place write through {ref.step.op} has no functional form")
        value = inverse(ref, ref.step, read(ref.parent, emit), value, emit)
        ref = ref.parent
        chain.append((ref, value))
    ref.storage.version += 1
    for written, new in chain:
        written.value, written.version = new, ref.storage.version


# What the parent of a view becomes where a value is written through it: (view, its step, parent,
# value, emit) -> parent.
Inverse = Callable[[Ref, Step, Node, Node, Emit], Node]


def _reshape_back(ref: Ref, step: Step, parent: Node, value: Node, emit: Emit) -> Node:
    return emit(aten.reshape.default, value, [*ref.parent.fake.shape])  # type: ignore[union-attr]


def _permute_back(ref: Ref, step: Step, parent: Node, value: Node, emit: Emit) -> Node:
    rank = len(parent.type.shape)
    order = [d % rank for d in step.args[0]]
    return emit(aten.permute.default, value, [order.index(d) for d in range(rank)])


def _scatter(op: torch._ops.OpOverload) -> Inverse:
    return lambda _, step, parent, value, emit: emit(op, parent, value, *step.args, **step.kwargs)


def _piece_back(ref: Ref, step: Step, parent: Node, value: Node, emit: Emit) -> Node:
    sizes, dim = step.args[0], step.args[1] if len(step.args) > 1 else step.kwargs.get("dim", 0)
    start = sum(sizes[: step.index]) if isinstance(sizes, Sequence) else sizes * step.index
    stop = start + ref.fake.shape[dim]
    return emit(aten.slice_scatter.default, parent, value, dim, start, stop)


def _unbind_back(ref: Ref, step: Step, parent: Node, value: Node, emit: Emit) -> Node:
    dim = step.args[0] if step.args else step.kwargs.get("dim", 0)
    return emit(aten.select_scatter.default, parent, value, dim, step.index)


RESHAPES = {aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default}
SQUEEZES = {aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default}

INVERSES: dict[torch._ops.OpOverload, Inverse] = {
    **dict.fromkeys(RESHAPES | SQUEEZES, _reshape_back),
    **dict.fromkeys((aten.detach.default, aten.alias.default), lambda _r, _s, _p, value, _e: value),
    aten.t.default: lambda _r, s, _p, v, emit: emit(s.op, v),
    aten.transpose.int: lambda _r, s, _p, v, emit: emit(s.op, v, *s.args),
    aten.permute.default: _permute_back,
    aten.select.int: _scatter(aten.select_scatter.default),
    aten.slice.Tensor: _scatter(aten.slice_scatter.default),
    aten.diagonal.default: _scatter(aten.diagonal_scatter.default),
    aten.as_strided.default: _scatter(aten.as_strided_scatter.default),
    **dict.fromkeys((aten.split.Tensor, aten.split_with_sizes.default), _piece_back),
    aten.unbind.int: _unbind_back,
    aten.view.dtype: lambda _r, _s, p, v, emit: emit(aten.view.dtype, v, TORCH_DTYPE[p.type.dtype]),
    aten.view_as_real.default: lambda _r, _s, _p, v, emit: emit(aten.view_as_complex.default, v),
    aten.view_as_complex.default: lambda _r, _s, _p, v, emit: emit(aten.view_as_real.default, v),
}


def overlaps_itself(type_: TensorType) -> bool:
    """Whether two elements may be in one place: an expanded tensor, or windows of one."""
    extent = 0
    for stride, size in sorted(zip(type_.layout, type_.shape, strict=True), key=itemgetter(0)):
        if size > 1 and stride <= extent:
            return 0 not in type_.shape
        extent += stride * (size - 1)
    return False


def is_dense(type_: TensorType) -> bool:
    """No gaps and no overlap: the elements fill their extent exactly once."""
    axes = [pair for pair in zip(type_.layout, type_.shape, strict=True) if pair[1] != 1]
    axes.sort(key=itemgetter(0), reverse=True)
    sizes = tuple(size for _, size in axes)
    return 0 in sizes or tuple(stride for stride, _ in axes) == row_major(sizes)
