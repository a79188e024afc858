"""What the trace of a program takes for granted of its inputs and of torch's modes.

assumed = Assumptions.of((x, weight))     # hashable: the key that a specialisation is found by
check = assumed.check((x, weight))        # check(x, weight) -> bool in C++, about 0.2 us

Python state (attributes, globals, closures, hooks) is not here: Dynamo captures and guards that.
"""

# This file reaches into torch: its guards have no public names for all of it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._C._dynamo.guards import GlobalStateGuard, TensorGuards
from torch._subclasses.fake_tensor import FakeTensor

from weft.frontend.subclasses import picked, plain, wrappers

# Of these, equal values of one type are the same value; of floats, -0.0 and 0.0 are not.
EXACT = (type(None), bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
CONSTANTS = (*EXACT, float, complex)  # values that an FX graph holds as they are
# To a graph these are all tensors without behaviour of their own.
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)

Check = Callable[..., bool]


@dataclass(frozen=True)
class Assumptions:
    """One fact per input, how inputs overlap in memory, and torch's modes.

    inputs   of a tensor: type, shape, strides, dtype, device, layout, requires_grad, conj, neg
             of another value: its type and the value itself
    sharing  per tensor, the first one in the same storage and the distance to it; empty where
             all storages differ
    modes    gradients on or off, default dtype, what autocast casts to, deterministic or not
    wrappers of tensors that are made of others, which stand in their place above: their types,
             what these hold, shapes, strides, ...
    """

    inputs: tuple[Any, ...]
    sharing: tuple[tuple[Any, ...], ...]
    modes: tuple[Any, ...]
    wrappers: tuple[Any, ...] = ()

    @staticmethod
    def of(inputs: Sequence[Any]) -> Assumptions:
        """The record that holds for these inputs now."""
        given = plain(inputs)
        kinds = wrappers(inputs, sized)
        return Assumptions(tuple(map(fact, given)), sharing(given), modes(), kinds)

    def apart(self, inputs: Sequence[Any]) -> Check | None:
        """What of the check looks at overlap alone; None where the record's tensors share."""
        places, comparable = self._tensors(inputs)
        if not comparable or self.wrappers:
            return None
        sizes = [n for i in places for part in self.inputs[i][1:3] for n in part]
        return _apart(places, len(inputs), ANY not in sizes)

    def check(self, inputs: Sequence[Any], alone: bool = False) -> Check:
        """A fast function that is true only for inputs that the record holds for.

        `inputs` satisfy the record. Overlap is looked at only where it matters: `alone` says that
        the program writes to inputs. How sizes that the record leaves open depend on each other is
        Dynamo's guard.
        """
        if self.wrappers:
            inner = replace(self, wrappers=()).check(plain(inputs), alone)
            pick = picked(inputs)
            return lambda *given: (
                fits(self.wrappers, wrappers(given, sized)) and inner(*pick(given))
            )
        places, comparable = self._tensors(inputs)
        tensors = [inputs[i] for i in places]
        apart = self.apart(inputs) if alone and len(tensors) > 1 else None
        if apart is not None:
            check = self.check(inputs)
            return lambda *given: check(*given) and apart(*given)
        others = [i for i in range(len(inputs)) if i not in places]
        if not comparable or any(type(inputs[i]) not in EXACT for i in others):
            return lambda *given: self.fit(given) and fits(self.sharing, sharing(given))
        same_modes, count = GlobalStateGuard().check, len(tensors)
        rest = [(i, type(inputs[i]), self.inputs[i][1]) for i in others]
        if not tensors:
            return lambda *given: same_modes() and equal(given, rest, 0)
        sizes, strides = ([known(self.inputs[i][n]) for i in places] for n in (1, 2))
        make: Any = TensorGuards  # its stub has the wrong types
        fit = make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        if not rest:
            return lambda *given: len(given) == count and same_modes() and fit(*given)
        return lambda *given: (
            equal(given, rest, count) and same_modes() and fit(*[given[i] for i in places])
        )

    def _tensors(self, inputs: Sequence[Any]) -> tuple[list[int], bool]:
        """Where the tensors are, and whether they are real ones, none of them twice."""
        places = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        tensors = [inputs[i] for i in places]
        once = len(set(map(id, tensors))) == len(tensors) and not self.sharing
        real = all(t.layout is torch.strided and not isinstance(t, FakeTensor) for t in tensors)
        return places, once and real

    def fit(self, inputs: Sequence[Any]) -> bool:
        """Whether this record holds for inputs, whatever their sizes where it has none."""
        found = Assumptions.of(inputs)
        told = self.inputs, self.modes, self.wrappers
        return fits(told, (found.inputs, found.modes, found.wrappers))


def _apart(places: Sequence[int], count: int, sized: bool) -> Check:
    """Whether no two of the tensors, at these places among `count` inputs, share a storage.

    Tensors of known sizes that lie where others lay apart do not overlap either: addresses, which
    take a tenth of the time to find, are compared first.
    """
    known: list[int] | None = None
    every = len(places) == count

    def apart(*given: Any) -> bool:
        nonlocal known
        if not sized:
            return not sharing(given)
        lie = [*map(torch.Tensor.data_ptr, given if every else [given[i] for i in places])]
        if lie != known and not sharing(given):
            known = lie
        return lie == known

    return apart


class _Any:
    """Stands in a record for a size that is no number: one object, in a pickle as well."""

    def __reduce__(self) -> str:
        return "ANY"


ANY = _Any()


def known(sizes: Sequence[Any]) -> list[int | None]:
    """The sizes as torch's guards take them: None for any."""
    return [None if n is ANY else n for n in sizes]


def fits(told: Any, found: Any) -> bool:
    """Whether what was found is what a record tells, or a size where it tells of any."""
    if isinstance(told, tuple) and isinstance(found, tuple):
        return len(told) == len(found) and all(map(fits, told, found))
    return told is ANY or told == found


def equal(given: Sequence[Any], rest: Sequence[tuple[int, type, Any]], tensors: int) -> bool:
    """Whether those of `rest` are of the same type and value, and so many tensors stand beside."""
    if len(given) != len(rest) + tensors:
        return False
    pairs = ((given[i], kind, value) for i, kind, value in rest)
    return all(type(x) is kind and (value is ANY or x == value) for x, kind, value in pairs)


def fact(value: Any) -> Any:
    """What is assumed of one input."""
    if isinstance(value, torch.SymInt):
        return int, ANY
    if not isinstance(value, torch.Tensor):
        # repr tells -0.0 from 0.0, and lets nan equal nan
        exact = repr(value) if isinstance(value, (float, complex)) else value
        return (type(value), exact) if isinstance(value, CONSTANTS) else type(value)
    kind = torch.Tensor if type(value) in PLAIN else type(value)
    strides = sized(value.stride()) if value.layout is torch.strided else value.layout
    wants = torch.is_grad_enabled() and value.requires_grad
    lazy = value.is_conj(), value.is_neg()
    return kind, sized(value.shape), strides, value.dtype, value.device, wants, *lazy


def sized(sizes: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(ANY if isinstance(n, torch.SymInt) else n for n in sizes)


def sharing(inputs: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """Which tensors lie in one storage, and where; empty in the plain case."""
    tensors = [t for t in inputs if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    storages = [t.untyped_storage()._cdata for t in tensors]
    if len(set(storages)) == len(storages):
        return ()
    first: dict[int, int] = {}
    owners = [first.setdefault(storage, i) for i, storage in enumerate(storages)]
    offsets = [t.storage_offset() for t in tensors]
    return tuple((i, *sized([at - offsets[i]])) for i, at in zip(owners, offsets, strict=True))


def modes() -> tuple[Any, ...]:
    """Gradients, default dtype, what each kind of device casts to (None: it does not), and whether
    algorithms have to be deterministic."""
    kinds = ("cpu", "cuda")
    casts = (torch.get_autocast_dtype(k) if torch.is_autocast_enabled(k) else None for k in kinds)
    ordered = torch.are_deterministic_algorithms_enabled()
    return (torch.is_grad_enabled(), torch.get_default_dtype(), *casts, ordered)
