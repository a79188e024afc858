"""What kernels make of constants once: memory that all programs share which make the same of them.

own = PACKED.get(key) or Packed(memory)    # key: the kernel, where its operands lie
stale([(own, state)])                    # whether it is to be made, from constants in that state
moved(sources)                           # whether one of these storages has gone

An address alone does not tell a tensor from another: memory that is free is used again. So the
storages that were read are remembered by weak references, and one that has gone is another one.
"""

# This file reaches into torch: whether a storage has gone has no public name.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from weft.runtime.layout import Layout
from weft.runtime.native import once_inputs
from weft.runtime.spec import Call

State = tuple[tuple[int, int], ...]  # of the constants something is made of: address, version
_expired = torch.UntypedStorage._expired


class Packed:
    """Memory with what one kernel made, the state of the constants that it is of, and these."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.made: State | None = None
        self.sources: Sequence[StorageWeakRef] = ()


Kept = Sequence[tuple[Packed, State]]  # what a program reads, and what it has to be made of
PACKED: WeakValueDictionary[tuple[Any, ...], Packed] = WeakValueDictionary()


def moved(sources: Sequence[StorageWeakRef]) -> bool:
    """Whether a storage has gone: what lies at its address now is another one."""
    return any(_expired(s.cdata) for s in sources)


def stale(kept: Kept) -> bool:
    """Whether some of it is to be made; until then nobody takes it for made."""
    if all(own.made == state and not moved(own.sources) for own, state in kept):
        return False
    for own, _ in kept:
        own.made = None
    return True


def settle(kept: Kept, sources: Sequence[torch.Tensor]) -> list[StorageWeakRef]:
    """Notes that all of it is made of those constants; their storages."""
    found = [StorageWeakRef(s.untyped_storage()) for s in sources]
    for own, state in kept:
        own.made, own.sources = state, found
    return found


def sources_of(layout: Layout) -> dict[str, tuple[int, ...]]:
    """For every buffer that a once step makes, the numbers of the once inputs that it is of."""
    numbers = {name: (i,) for i, name in enumerate(once_inputs(layout))}
    found: dict[str, tuple[int, ...]] = {}
    for step in layout.spec.steps:
        if isinstance(step, Call) and step.once is not None:
            read = (numbers.get(name) or found.get(name, ()) for name in step.args)
            own = tuple(sorted({i for each in read for i in each}))
            found |= {n: own for n in step.args if layout.buffers[n].kind == "kept"}
    return found


def held(kept: Kept) -> Mapping[int, int]:
    """The bytes that lie at each address."""
    return {own.memory.data_ptr(): own.memory.nbytes for own, _ in kept}
