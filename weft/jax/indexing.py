"""Rows of gather, scatter and dynamic slices, whose indices are operands.

Both have dimension numbers: `windows_of` gives, for each axis of the operand, the index of each
element that a window holds, over axes for the windows and then axes of a window.
"""

from collections.abc import Sequence
from typing import Any

import torch

from weft.jax.rows import MISSING, Out, highest, lowest, row

Tensor = torch.Tensor
Sizes = Sequence[int]


def windows_of(
    shape: Sizes,
    indices: Tensor,
    sizes: Sizes,
    index_axes: Sizes,
    collapsed: Sizes,
    batching: Sequence[tuple[int, int]],
) -> tuple[list[Tensor], Tensor]:
    """Indices into each axis of an operand, and which windows lie inside; others are moved there.

    sizes       of a window, along each axis of the operand
    index_axes  the axes of the operand that the last axis of `indices` has numbers for
    collapsed   axes of the operand that a window has none of, of size 1
    batching    pairs of an axis of the operand and one of `indices` that go together
    """
    batch = indices.shape[:-1]
    kept = [d for d in range(len(shape)) if d not in collapsed]
    whole = (*batch, *[1] * len(kept))
    inside = torch.ones(batch, dtype=torch.bool)
    found: list[Tensor] = []
    for d, n in enumerate(shape):
        start = torch.zeros(batch, dtype=torch.int64)
        if d in index_axes:
            start = indices[..., list(index_axes).index(d)].long()
            last = n - sizes[d]
            inside = inside & (start >= 0) & (start <= last)
            start = start.clamp(0, max(last, 0))
        for axis, of in batching:
            if axis == d:
                line = [1] * len(batch)
                line[of] = n
                start = torch.arange(n).reshape(line).expand(batch)
        window = [1] * len(kept)
        if d in kept:
            window[kept.index(d)] = sizes[d]
        offsets = torch.arange(sizes[d] if d in kept else 1).reshape(window)
        found.append(start.reshape(whole) + offsets)
    return found, inside.reshape(whole)


def _mode(mode: Any) -> str:
    return "clip" if str(mode).rpartition(".")[2].lower() in ("clip", "0") else "fill"


@row("gather")
def gather(
    x: Tensor,
    indices: Tensor,
    *,
    dimension_numbers: Any,
    slice_sizes: Sizes,
    mode: Any,
    fill_value: Any,
    out: Out,
    **_: Any,
) -> Tensor:
    """Windows of x; those that do not lie inside move inside, or have another value."""
    d = dimension_numbers
    clip = _mode(mode) == "clip" or "PROMISE" in str(mode)
    batching = [*zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True)]
    collapsed = sorted((*d.collapsed_slice_dims, *d.operand_batching_dims))
    at, inside = windows_of(x.shape, indices, slice_sizes, d.start_index_map, collapsed, batching)
    batch = indices.dim() - 1
    if x.numel() == 0:
        shape = torch.broadcast_shapes(*(a.shape for a in at))
        found = torch.full(shape, _fill(out, fill_value), dtype=x.dtype)
    else:
        found = x[tuple(at)] if at else x.expand(indices.shape[:-1])
        if not clip:
            found = torch.where(
                inside, found, torch.full((), _fill(out, fill_value), dtype=x.dtype)
            )
    return found.movedim(tuple(range(batch, found.dim())), tuple(d.offset_dims))


def _fill(out: Out, value: Any) -> Any:
    """What stands for elements outside: NaN, True, the least integer; 2^n - 1 without a sign."""
    if value is not None:
        return value
    if out.dtype.is_floating_point or out.dtype.is_complex:
        return float("nan")
    unsigned = out.dtype is torch.bool or out.name.startswith("u")
    return highest(out.dtype) if unsigned else lowest(out.dtype)


HOW = {
    "scatter_mul": "prod",
    "scatter_max": "amax",
    "scatter_min": "amin",
}


def _of_ones_own(p: dict[str, Any], ranks: list[int]) -> str:
    update = p["update_jaxpr"]
    plain = update is None or update.is_second
    return "" if plain else "scatter by a function of one's own"


MISSING["scatter"] = _of_ones_own


def _scatter(name: str) -> None:
    key = name.replace("-", "_")

    @row(name, key)
    def scatter(
        x: Tensor,
        indices: Tensor,
        updates: Tensor,
        *,
        dimension_numbers: Any,
        mode: Any,
        **_: Any,
    ) -> Tensor:
        if x.numel() == 0 or updates.numel() == 0:
            return x
        flat, values = _targets(x, indices, updates, dimension_numbers, _mode(mode) == "clip")
        return combined(key, x, flat, values)


for _name in ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"):
    _scatter(_name)


def _targets(
    x: Tensor, indices: Tensor, updates: Tensor, d: Any, clip: bool
) -> tuple[Tensor, Tensor]:
    """The flat place of each update, behind the last element where its window is left out."""
    batch = updates.dim() - len(d.update_window_dims)
    updates = updates.movedim(tuple(d.update_window_dims), tuple(range(batch, updates.dim())))
    batching = [*zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True)]
    collapsed = sorted((*d.inserted_window_dims, *d.operand_batching_dims))
    window = iter(updates.shape[batch:])
    sizes = [1 if axis in collapsed else next(window) for axis in range(x.dim())]
    at, inside = windows_of(
        x.shape, indices, sizes, d.scatter_dims_to_operand_dims, collapsed, batching
    )
    flat = torch.zeros((), dtype=torch.int64)
    for index, n in zip(at, x.shape, strict=True):
        flat = flat * n + index
    if not clip:
        flat = torch.where(inside, flat, torch.full((), x.numel()))
    return flat.expand(updates.shape).flatten(), updates.flatten()


def combined(how: str, x: Tensor, flat: Tensor, values: Tensor) -> Tensor:
    """x with values combined into flat places; the place behind the last one is dropped."""
    kept = x.dtype
    if kept is torch.bool:
        x, values = x.to(torch.uint8), values.to(torch.uint8)
    own = torch.cat([x.flatten(), torch.zeros(1, dtype=x.dtype)])
    if how == "scatter":
        own = own.index_put((flat,), values.to(x.dtype))
    elif how in HOW:
        own = own.scatter_reduce(0, flat, values.to(x.dtype), HOW[how])
    else:
        values = -values if how == "scatter_sub" else values
        own = own.index_add(0, flat, values.to(x.dtype))
    return own[:-1].reshape(x.shape).to(kept)


def _start(start: Tensor, size: int, n: int) -> Tensor:
    return start.long().clamp(0, n - size)


@row("dynamic_slice")
def dynamic_slice(x: Tensor, *starts: Tensor, slice_sizes: Sizes, out: Out, **_: Any) -> Tensor:
    for d, (start, size) in enumerate(zip(starts, slice_sizes, strict=True)):
        if size != x.shape[d]:
            x = x.index_select(d, _start(start, size, x.shape[d]) + torch.arange(size))
    return x


@row("dynamic_update_slice")
def dynamic_update_slice(x: Tensor, update: Tensor, *starts: Tensor, **_: Any) -> Tensor:
    """Each element of x, or the one of the update that lies over it."""
    if update.numel() == 0:
        return x
    inside = torch.ones((), dtype=torch.bool)
    for d, (start, size) in enumerate(zip(starts, update.shape, strict=True)):
        n = x.shape[d]
        at = torch.arange(n) - _start(start, size, n)
        line = [1] * x.dim()
        line[d] = n
        inside = inside & ((at >= 0) & (at < size)).reshape(line)
        update = update.index_select(d, at.clamp(0, size - 1))
    return torch.where(inside, update, x)
