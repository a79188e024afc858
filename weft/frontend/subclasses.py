"""Tensor subclasses that say what tensors they are made of: those are a program's inputs.

plain(inputs)                     # the tensors that wrappers are made of stand in their place
whole(inputs, plain_fakes)        # wrappers of the same kinds, of other tensors
wrappers(inputs)                  # what a program takes for granted of the wrappers

A wrapper may be made of wrappers. Its own dispatch says what calls on it compute.
"""

# pyright: reportPrivateUsage=false

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass as is_wrapper

Kind = tuple[Any, ...]  # of one wrapper: its place among the inputs, its type, names, context, ...


class Context:
    """What a wrapper holds beside its tensors, as it was when the program was traced.

    It is compared as Dynamo's guards do: by the class's `__metadata_guard__`, or for equality.
    """

    def __init__(self, kind: type, value: Any) -> None:
        self.kind, self.value = kind, value

    def __hash__(self) -> int:
        return hash(self.kind)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Context) or self.kind is not other.kind:
            return False
        same: Callable[[Any, Any], bool] | None = getattr(self.kind, "__metadata_guard__", None)
        return bool(same(self.value, other.value) if same else self.value == other.value)


def _is_made_of_others(value: Any) -> bool:
    return is_wrapper(value)


def parts(tensor: Any) -> tuple[list[str], Any]:
    """The names of the tensors that a wrapper is made of, and its context."""
    return tensor.__tensor_flatten__()


def plain(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The inputs, wrappers taken apart as often as they are."""
    return tuple(tensor for value in inputs for tensor, _ in leaves(value))


def leaves(value: Any, name: str = "") -> Iterator[tuple[Any, str]]:
    """The plain values that one is made of, each with its name: weight_scale of weight."""
    if not _is_made_of_others(value):
        yield value, name
        return
    for part in parts(value)[0]:
        yield from leaves(getattr(value, part), f"{name}_{part}")


def picked(inputs: Sequence[Any]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A fast `plain` for inputs of the same kinds."""
    ways = [(i, way) for i, value in enumerate(inputs) for way in _ways(value)]

    def pick(given: Sequence[Any]) -> tuple[Any, ...]:
        found: list[Any] = []
        for i, way in ways:
            value = given[i]
            for part in way:
                value = getattr(value, part)
            found.append(value)
        return tuple(found)

    return pick


def _ways(value: Any) -> Iterator[tuple[str, ...]]:
    if not _is_made_of_others(value):
        yield ()
        return
    for part in parts(value)[0]:
        yield from ((part, *way) for way in _ways(getattr(value, part)))


def whole(inputs: Sequence[Any], fakes: Sequence[Any]) -> list[Any]:
    """What stands for the inputs, of what stands for their plain parts."""
    rest = iter(fakes)
    return [_rebuilt(value, rest) for value in inputs]


def _rebuilt(value: Any, rest: Iterator[Any]) -> Any:
    if not _is_made_of_others(value):
        return next(rest)
    names, context = parts(value)
    inner = {name: _rebuilt(getattr(value, name), rest) for name in names}
    make: Any = type(value)  # a class that torch has no protocol in types for
    made = make.__tensor_unflatten__(inner, context, value.shape, value.stride())
    return made.requires_grad_(value.requires_grad and value.is_leaf)


def wrappers(inputs: Sequence[Any], sized: Callable[[Any], Any]) -> tuple[Kind, ...]:
    """The kinds of all wrappers among the inputs, nested ones too; sizes as `sized` says them."""
    return tuple(kind for i, x in enumerate(inputs) for kind in _kinds(x, (i,), sized))


def _kinds(value: Any, place: tuple[Any, ...], sized: Callable[[Any], Any]) -> Iterator[Kind]:
    if not _is_made_of_others(value):
        return
    names, context = parts(value)
    wants = torch.is_grad_enabled() and value.requires_grad
    sizes = sized(value.shape), sized(value.stride())
    told = Context(type(value), deepcopy(context))
    yield (place, type(value), tuple(names), told, *sizes, value.dtype, value.device, wants)
    for name in names:
        yield from _kinds(getattr(value, name), (*place, name), sized)
