"""Buffers of a block: as tensors where every access is of the whole, else in memory of the launch.

slabs_of(plan)["scores"].held      # True: `scores = ...`, without a load or a store
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.core.node import Node, postorder
from weft.export.triton.plan import Plan, count_of, power_of_two
from weft.scalar import nest
from weft.scalar.nest import Buffer, For, Store, free_variables
from weft.scalar.ops import Constant, evaluate_term, value_of

MOST = 32_768  # elements that stay a tensor


@dataclass
class Slab:
    """dimensions are those of more than one element, sizes what they are as a tensor."""

    buffer: Buffer
    dimensions: tuple[int, ...]
    held: bool = False
    starts: bool = False  # a loop stores it first, so that it needs a value before
    name: str = ""

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(power_of_two(self.buffer.type.shape[d]) for d in self.dimensions)

    def fills(self, stmt: Store) -> bool:
        """Whether it stores one constant, by other indices than one axis a dimension."""
        axes = [stmt.index[d] for d in self.dimensions]
        return isinstance(stmt.value.op, Constant) and any(a.args for a in axes)


@dataclass(frozen=True)
class Access:
    index: tuple[Node, ...]
    loops: tuple[For, ...]  # inside of the declaration
    store: Store | None = None


def slabs_of(plan: Plan) -> dict[str, Slab]:
    found: dict[str, Slab] = {}
    _declared(plan, plan.body, (), found)
    return found


def _declared(
    plan: Plan, body: nest.Block, around: tuple[For, ...], found: dict[str, Slab]
) -> None:
    for stmt in body:
        if isinstance(stmt, For):
            _declared(plan, stmt.body, (*around, stmt), found)
        elif isinstance(stmt, nest.Local):
            shape = stmt.buffer.type.shape
            slab = Slab(stmt.buffer, tuple(d for d, n in enumerate(shape) if n != 1))
            accesses = [*_accesses(stmt.buffer.name, body, ())]
            alone = not any(f.bind == "lanes" for f in around)
            small = math.prod(slab.sizes) <= MOST
            slab.held = alone and small and all(_is_whole(plan, slab, a) for a in accesses)
            slab.starts = _starts(plan, accesses)
            found[stmt.buffer.name] = slab


def _accesses(name: str, body: nest.Block, loops: tuple[For, ...]) -> list[Access]:
    """The loads and stores of a buffer, in order."""
    found: list[Access] = []
    for stmt in body:
        terms = [sub for t in stmt.terms() for sub in postorder(t)]
        for sub in dict.fromkeys(terms):
            if isinstance(sub.op, nest.Load) and sub.op.buffer.name == name:
                found.append(Access(sub.args if sub.op.masked else tuple(sub.args), loops))
        if isinstance(stmt, Store) and stmt.buffer.name == name:
            found.append(Access(stmt.index, loops, stmt))
        if isinstance(stmt, For):
            found.extend(_accesses(name, stmt.body, (*loops, stmt)))
    return found


def _is_whole(plan: Plan, slab: Slab, access: Access) -> bool:
    """Whether each dimension is gone through by an axis of its own, from end to end."""
    lanes = {f.axis: f for f in access.loops if f.bind == "lanes"}
    rank = slab.buffer.type.rank
    if len(access.index) != rank:  # a load with a mask
        return False
    store = access.store
    if store is not None and (store.mask is not None or store.how or store.when is not None):
        return False
    if store is not None and slab.fills(store):
        return _covers(slab, access, lanes)
    axes = [access.index[d] for d in slab.dimensions]
    if len(set(axes)) != len(axes) or any(a not in lanes for a in axes):
        return False
    if store is not None and set(lanes) != set(axes):
        return False
    for d, axis in zip(slab.dimensions, axes, strict=True):
        loop, extent = lanes[axis], slab.buffer.type.shape[d]
        literal = value_of(loop.lo) == 0 and value_of(loop.hi) == extent and loop.step == 1
        if not literal or plan.sizes[axis] != power_of_two(extent):
            return False
    return True


def _covers(slab: Slab, access: Access, lanes: dict[Node, For]) -> bool:
    """Whether the loops around a store of a constant go through every element."""
    if any(value_of(f.lo) != 0 or f.extent is None or f.step != 1 for f in lanes.values()):
        return False
    if not free_variables(*access.index) <= set(lanes):
        return False
    counts = [f.extent or 0 for f in lanes.values()]
    if math.prod(counts) > 4 * MOST:
        return False
    grids = np.meshgrid(*map(np.arange, counts), indexing="ij")
    known = dict(zip(lanes, grids, strict=True))
    places = [np.broadcast_to(evaluate_term(t, dict(known)), counts) for t in access.index]
    shape = slab.buffer.type.shape
    flat = np.ravel_multi_index([p.ravel() for p in places], shape)
    return np.unique(flat).size == math.prod(shape)


def _starts(plan: Plan, accesses: Sequence[Access]) -> bool:
    def path(access: Access) -> list[For]:
        return [f for f in access.loops if f.bind != "lanes" or _in_chunks(plan, f)]

    if not accesses:
        return False
    first = path(accesses[0])
    inside = all(path(a)[: len(first)] == first for a in accesses)
    return accesses[0].store is None or not inside


def _in_chunks(plan: Plan, loop: For) -> bool:
    count = count_of(loop)
    return count is None or count > plan.sizes[loop.axis]
