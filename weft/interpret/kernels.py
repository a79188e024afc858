"""The reference interpreter of kernel programs: interpret/nests.py, with vector accesses added.

run(program, [x, w])      # as weft.interpret.nests.run; buffers are flat, lanes the last dimension
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.errors import WeftError
from weft.core.node import Node
from weft.interpret import nests as interpret
from weft.interpret.memory import both
from weft.interpret.nests import SCALAR, Access
from weft.kernel.ops import Barrier, Box, Mma, ThreadXor, VectorLoad, VectorStore
from weft.scalar.blocks import nodes
from weft.scalar.nest import Program, walk


def _load(op: VectorLoad, index: Any, *rest: Any) -> Access:
    lane = np.arange(op.lanes)
    some = (lane < rest[0],) if op.counted else rest
    return Access(op.buffer, (index + lane * op.stride,), *some)


def _store(stmt: VectorStore, value: Callable[[Node], Any]) -> Access:
    lane = np.arange(stmt.lanes)
    counted = None if stmt.count is None else lane < value(stmt.count)
    runs = both(None if stmt.mask is None else value(stmt.mask), counted)
    index = value(stmt.index) + lane * stmt.stride
    return Access(stmt.buffer, (index,), runs, value=value(stmt.value))


def _box(op: Box, *at: Any) -> Access:
    lanes = np.indices(op.sides).reshape(len(op.sides), -1)
    places = [start + lane for start, lane in zip(at, lanes, strict=True)]
    inside = [(p >= 0) & (p < n) for p, n in zip(places, op.sizes, strict=True)]
    index = sum(p * n for p, n in zip(places, op.strides, strict=True))
    return Access(op.buffer, (index,), np.logical_and.reduce(np.broadcast_arrays(*inside)))


VECTOR = {**SCALAR, VectorLoad: _load, VectorStore: _store, Box: _box}


def run(program: Program, inputs: Sequence[Any], *, widen: bool = False) -> list[Any]:
    """Execute a kernel-level program; WeftError where it has barriers or shuffles of threads."""
    for kernel in program.kernels:
        parts = (*walk(kernel.body), *(term.op for term in nodes(kernel.body)))
        if any(isinstance(part, Barrier | Mma | ThreadXor) for part in parts):
            told = f"in kernel {kernel.name} threads wait for each other"
            raise WeftError(f"{told}: the simulator runs it (simulate=True), not the interpreter")
    return interpret.run(program, inputs, accesses=VECTOR, widen=widen)
