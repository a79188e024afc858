"""Functions of a few bits as tables: a permutation of a register that holds all their values.

subtract(f32(and(x, 15:u8)), 8.0)   ->   permute(pack(-8.0, -7.0, ..., 7.0), i32(x))

Of codes of four bits 16 lanes hold them all, whatever the function is: an offset, a rounding, the
values of NF4 or of E2M1.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from weft.core.node import Node, make
from weft.core.types import i32
from weft.kernel.ops import Pack
from weft.scalar.affine import function_of
from weft.scalar.ops import Apply, Constant, apply, cast, constant, is_index, value_of

LEAST = 2  # functions that one permutation replaces


class Table(NamedTuple):
    """`values` of a term, by lane, and where each lane finds its own: `at`, modulo their number."""

    values: Node
    at: Node


@lru_cache(1 << 12)
def table(node: Node, lanes: int) -> Table | None:
    """The term as a table of so many lanes; None where it has more values, or is cheap."""
    if not _is_function(node) or node.type.dtype.bytes != 4 or is_index(node):
        return None
    code, above, depth, bits = node, node, 0, None
    while _is_function(code) and bits is None:
        bits, above = _bits(code), code
        (code,) = [a for a in code.args if not isinstance(a.op, Constant)]
        depth += 1
    if depth <= LEAST or bits is None or 1 << bits > lanes:
        return None
    code = above
    inputs = np.arange(lanes, dtype=np.int64).astype(code.type.dtype.numpy)
    values = _evaluated(node, code, inputs)
    dtype = node.type.dtype
    entries = (constant(dtype.python(v), dtype) for v in values)
    return Table(make(Pack(), *entries), _place(code, 1 << bits == lanes))


def _is_function(node: Node) -> bool:
    """Whether a term is a function of one other, and of constants."""
    others = [a for a in node.args if not isinstance(a.op, Constant)]
    return isinstance(node.op, Apply) and len(others) == 1


def _bits(node: Node) -> int | None:
    """How many low bits decide a term, where it keeps them alone and is of a byte."""
    if node.type.dtype.bytes != 1 or node.type.dtype.kind != "uint":
        return None
    by = value_of(node.args[1]) if len(node.args) == 2 else None
    if by is None:
        return None
    if function_of(node) == "shift_right":
        return max(0, 8 - int(by))
    mask = int(by) if function_of(node) == "and" else 0
    return mask.bit_length() if mask and mask & (mask + 1) == 0 else None


def _place(code: Node, whole: bool) -> Node:
    """The code as an i32, where what is above the bits of a `whole` table has no say."""
    x, by = code.args
    wide = cast(x, i32)
    if function_of(code) == "shift_right":
        return apply("shift_right", wide, constant(int(value_of(by) or 0), i32))
    return wide if whole else apply("and", wide, constant(int(value_of(by) or 0), i32))


def _evaluated(node: Node, code: Node, inputs: np.ndarray) -> np.ndarray:
    """The values of a term for those of the code in it."""
    if node is code:
        return inputs
    if isinstance(node.op, Constant):
        return np.asarray(node.op.value, node.type.dtype.numpy)
    assert isinstance(node.op, Apply)
    with np.errstate(all="ignore"):
        found = node.op.function.evaluate(*(_evaluated(a, code, inputs) for a in node.args))
    return np.asarray(found, node.type.dtype.numpy)
