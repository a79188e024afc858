"""Control flow, sequences and optional values: Python's own, with graphs as functions.

If(condition, then_branch=then_branch, else_branch=else_branch)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.onnx.rows.pointwise import is_text
from weft.onnx.table import op
from weft.onnx.types import as_numbers, as_tensor, number, refuse, stored


def read(value: Any) -> Any:
    """A number of a tensor with one element, or of a tuple of one."""
    return value.item() if isinstance(value, Tensor) else number(value)


def if_(condition: Any, *, then_branch: Callable[..., Any], else_branch: Callable[..., Any]) -> Any:
    return then_branch() if read(condition) else else_branch()


def loop(
    most: Any,
    condition: Any = None,
    *carried: Any,
    body: Callable[..., Any],
    kept: tuple[tuple[int, Any], ...] = (),
) -> Any:
    """As long as `condition` holds, `most` times at the most; then the stacks of what is kept.

    `kept` are the element types and shapes of what is, as far as the model states them.
    """
    most = None if most is None else read(most)
    alive = condition is None or read(condition)
    stacks: list[list[Any]] = []
    trip = 0
    while alive and (most is None or trip < most):
        found = body(trip, True if condition is None else condition, *carried)
        condition, carried = found[0], found[1 : 1 + len(carried)]
        rest = found[1 + len(carried) :]
        stacks = stacks or [[] for _ in rest]
        for stack, value in zip(stacks, rest, strict=True):
            stack.append(as_tensor(value))
        alive = read(condition)
        trip += 1
    results = map(stacked, stacks) if trip else map(nothing, kept)
    return (*carried, *results)


def nothing(kind: tuple[int, Any]) -> Tensor:
    """A stack of no values of a type and shape."""
    element, shape = kind
    if shape is None or not all(isinstance(n, int) for n in shape):
        refuse("it runs not once, and the model states no shape of what it keeps")
    return torch.empty((0, *shape), dtype=stored(element))


def stacked(values: list[Any]) -> Any:
    return np.stack(values) if is_text(values[0]) else torch.stack(values)


def scan_words(count: int, *given: Any) -> list[tuple[int, ...]]:
    return [value or (0,) * count for value in given]


def scan(
    *inputs: Any,
    body: Callable[..., Any],
    num_scan_inputs: int,
    scan_input_axes: tuple[int, ...] | None = None,
    scan_input_directions: tuple[int, ...] | None = None,
    scan_output_axes: tuple[int, ...] | None = None,
    scan_output_directions: tuple[int, ...] | None = None,
) -> Any:
    """Runs the body over slices of the last inputs, with the first ones as its state."""
    states = inputs[: len(inputs) - num_scan_inputs]
    axes, backs = scan_words(num_scan_inputs, scan_input_axes, scan_input_directions)
    scanned = [as_tensor(x) for x in inputs[len(inputs) - num_scan_inputs :]]
    lengths = [x.shape[a] for x, a in zip(scanned, axes, strict=True)]
    stacks: list[list[Any]] = []
    for t in range(lengths[0]):
        slices = [
            x.select(a, n - 1 - t if back else t)
            for x, a, n, back in zip(scanned, axes, lengths, backs, strict=True)
        ]
        found = body(*states, *slices)
        states = found[: len(states)]
        stacks = stacks or [[] for _ in found[len(states) :]]
        for stack, value in zip(stacks, found[len(states) :], strict=True):
            stack.append(as_tensor(value))
    out_axes, out_backs = scan_words(len(stacks), scan_output_axes, scan_output_directions)
    results = [
        torch.stack(stack[::-1] if back else stack, axis)
        for stack, axis, back in zip(stacks, out_axes, out_backs, strict=True)
    ]
    return (*states, *results)


def scan_8(
    lengths: Any,
    *inputs: Any,
    body: Callable[..., Any],
    num_scan_inputs: int,
    directions: Any = None,
) -> Any:
    """Opset 8: each element of a batch by itself, over as many slices as its length says."""
    batch = inputs[0].shape[0]
    counts = [inputs[-1].shape[1]] * batch if lengths is None else as_numbers(lengths)
    first = len(inputs) - num_scan_inputs
    rows = []
    for b in range(batch):
        own = [x[b] if i < first else x[b, : counts[b]] for i, x in enumerate(inputs)]
        rows.append(
            scan(*own, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions)
        )
    return tuple([torch.stack(list(column)) for column in zip(*rows, strict=True)])


op("If", wants=(0,), raw=True)(if_)
op("Loop", wants=(0, 1), raw=True)(loop)
op("Scan", raw=True)(scan_8)
op("Scan", since=9, raw=True)(scan)


# Sequences are lists of tensors, and never changed in place.


op("SequenceConstruct")(lambda *values: list(values))
op("SequenceEmpty")(lambda *, dtype=1: [])
op("SequenceLength", sizes=True)(lambda values: len(values))
op("SequenceAt", wants=(1,))(lambda values, at: values[number(at)])


@op("SequenceInsert", wants=(2,))
def sequence_insert(values: list[Any], value: Any, at: Any = None) -> list[Any]:
    at = len(values) if at is None else number(at)
    at = at + len(values) if at < 0 else at
    if not 0 <= at <= len(values):
        refuse(f"position {at} is outside of a sequence of {len(values)}")
    return [*values[:at], value, *values[at:]]


@op("SequenceErase", wants=(1,))
def sequence_erase(values: list[Any], at: Any = None) -> list[Any]:
    at = len(values) - 1 if at is None else number(at) % len(values)
    return [*values[:at], *values[at + 1 :]]


@op("ConcatFromSequence")
def concat_from_sequence(values: list[Any], *, axis: int, new_axis: int = 0) -> Any:
    if is_text(values[0]):
        return (np.stack if new_axis else np.concatenate)(values, axis)
    return torch.stack(values, axis) if new_axis else torch.cat(values, axis)


@op("SplitToSequence", wants=(1,))
def split_to_sequence(
    x: Tensor, split: Any = None, *, axis: int = 0, keepdims: int = 1
) -> list[Tensor]:
    if split is None:
        parts = list(torch.split(x, 1, axis))
        return parts if keepdims else [part.squeeze(axis) for part in parts]
    return list(torch.split(x, list(split) if isinstance(split, tuple) else split, axis))


def sequence_map(first: list[Any], *others: Any, body: Callable[..., Any]) -> Any:
    """The body of each element; inputs that are no sequences are the same for all."""
    rows = [
        body(value, *(o[i] if isinstance(o, list) else o for o in others))
        for i, value in enumerate(first)
    ]
    return tuple([[as_tensor(v) for v in column] for column in zip(*rows, strict=True)])


op("SequenceMap", raw=True)(sequence_map)


op("Optional", raw=True)(lambda value=None, *, type=None: value)
op("OptionalHasElement", raw=True)(lambda value=None: torch.tensor(value is not None))


@op("OptionalGetElement", raw=True)
def optional_get_element(value: Any) -> Any:
    if value is None:
        refuse("an optional value is empty, where an element is wanted")
    return value
