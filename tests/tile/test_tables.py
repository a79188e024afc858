"""Functions of a few bits are looked up in a register."""

from __future__ import annotations

import numpy as np
import pytest

from weft.core.node import Node, make
from weft.core.types import TensorType, f32, i8, u8
from weft.kernel.ops import Permute
from weft.scalar.nest import Buffer, Load
from weft.scalar.ops import apply, cast, constant
from weft.tile.lower.tables import table

BYTE = make(Load(Buffer("codes", TensorType(u8, (64,)))), constant(3))
SIGNED = make(Load(Buffer("codes", TensorType(i8, (64,)))), constant(3))
LOW, HIGH = (apply(f, BYTE, constant(n, u8)) for f, n in (("and", 15), ("shift_right", 4)))


def shifted(code: Node) -> Node:
    return apply("subtract", cast(code, f32), constant(8.0, f32))


def looked_up(term: Node, lanes: int, byte: int) -> float:
    """What lane 0 finds where the loaded byte is that one."""
    found = table(term, lanes)
    assert found is not None
    at, x = found.at, np.asarray([byte])
    steps: list[Node] = []
    while at is not BYTE:
        steps.append(at)
        at = at.args[0]
    for step in reversed(steps):
        x = step.op.function.evaluate(x, *(np.asarray(a.op.value) for a in step.args[1:]))
    values = np.asarray([v.op.value for v in found.values.args])
    return float(Permute().evaluate(values, np.broadcast_to(x, (lanes,)))[0])


@pytest.mark.parametrize("byte", [0, 7, 16, 200, 255])
def test_each_byte_finds_its_value(byte: int) -> None:
    assert looked_up(shifted(LOW), 16, byte) == (byte & 15) - 8
    assert looked_up(shifted(HIGH), 16, byte) == (byte >> 4) - 8
    few = apply("and", BYTE, constant(3, u8))
    assert looked_up(shifted(few), 16, byte) == (byte & 3) - 8


@pytest.mark.parametrize(
    "term, lanes",
    [
        (shifted(LOW), 8),
        (cast(LOW, f32), 16),
        (shifted(BYTE), 16),
        (shifted(apply("and", BYTE, constant(5, u8))), 16),
        (apply("subtract", cast(SIGNED, f32), constant(8.0, f32)), 16),
        (apply("multiply", shifted(LOW), cast(BYTE, f32)), 16),
    ],
    ids=["few lanes", "a cast", "a byte", "no low bits", "signed", "of two terms"],
)
def test_others_are_computed(term: Node, lanes: int) -> None:
    assert table(term, lanes) is None
