"""The reference interpreter of kernel programs: the nest's, with the vector accesses added.

run(program, [x, w])      # as weft.scalar.interpret.run; buffers are flat, lanes the last dimension
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.node import Node
from weft.kernel.ops import VectorGather, VectorLoad, VectorMaskedLoad, VectorScatter, VectorStore
from weft.scalar import interpret
from weft.scalar.interpret import SCALAR, Access, Accesses
from weft.scalar.memory import both
from weft.scalar.nest import Program

Values = Callable[[Node], Any]


def _vector_load(op: VectorLoad, base: Any, count: Any = None) -> Access:
    lane = np.arange(op.lanes)
    return Access(op.buffer, (base + lane * op.stride,), None if count is None else lane < count)


def _gather(op: VectorGather, index: Any, *masked: Any) -> Access:
    lane = np.zeros(op.lanes, np.int64)
    return Access(op.buffer, (index + lane,), *masked)


def _masked_load(op: VectorMaskedLoad, base: Any, condition: Any, fill: Any) -> Access:
    return Access(op.buffer, (base + np.arange(op.lanes) * op.stride,), condition, fill)


def _vector_store(stmt: VectorStore, value: Values) -> Access:
    lane = np.arange(stmt.lanes)
    counted = None if stmt.count is None else lane < value(stmt.count)
    runs = both(None if stmt.mask is None else value(stmt.mask), counted)
    index = value(stmt.base) + lane * stmt.stride
    return Access(stmt.buffer, (index,), runs, value=value(stmt.value))


def _scatter(stmt: VectorScatter, value: Values) -> Access:
    lane = np.arange(stmt.lanes)
    runs = None if stmt.count is None else lane < value(stmt.count)
    return Access(stmt.buffer, (value(stmt.index) + 0 * lane,), runs, value=value(stmt.value))


LOADS = {VectorLoad: _vector_load, VectorGather: _gather, VectorMaskedLoad: _masked_load}
STORES = {VectorStore: _vector_store, VectorScatter: _scatter}
VECTOR = Accesses({**SCALAR.loads, **LOADS}, {**SCALAR.stores, **STORES})


def run(program: Program, inputs: Sequence[Any], *, widen: bool = False) -> list[Any]:
    """Execute a kernel-level program."""
    return interpret.run(program, inputs, accesses=VECTOR, widen=widen)
