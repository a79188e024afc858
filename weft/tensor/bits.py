"""The bits of values: integers in their order, and two values in one word.

key, first, count = order(load x[a0], f32, descending=False)    # an i32, all of whose bits count
word = packed(load x[a0], a0)                                   # an i64
value, place = unpacked(word, (f32, i32))
"""

from weft.core.node import Node
from weft.core.types import DType, boolean, i32, i64
from weft.scalar.ops import apply, cast, constant

DROPPED = {"bf16": 16, "f16": 13}  # low bits of an f32 of those types, which are all alike


def order(x: Node, dtype: DType, descending: bool) -> tuple[Node, int, int]:
    """An i32 or i64 in the order of values of that dtype in memory; its first bit, and how many.

    Of a float less than 0 all bits but the sign are flipped (Herf, Radix Tricks, 2001).
    """
    if dtype.is_float:
        zero, wide = constant(0, x.type.dtype), x.type.dtype.bits
        raw = apply("bits", apply("where", apply("eq", x, zero), zero, x))
        greatest = (1 << (wide - 1)) - 1
        most = constant(greatest, raw.type.dtype)
        sign = apply("shift_right", raw, constant(wide - 1, raw.type.dtype))
        raw = apply("xor", raw, apply("and", sign, most))
        nan = constant(greatest - (1 << (wide // 4)), raw.type.dtype)  # no key is the greatest
        raw = apply("where", apply("ne", x, x), nan, raw)
        low = DROPPED.get(dtype.name, 0)
        bits = wide - low
    else:
        raw, low = cast(x, i64 if dtype is i64 else i32), 0
        bits = 1 if dtype is boolean else dtype.bits
    return apply("not", raw) if descending else raw, low, bits


def packed(high: Node, low: Node) -> Node:
    """An i64 of two values of at most 32 bits as they are computed."""

    def wide(value: Node) -> Node:
        bits = apply("bits", value) if value.type.dtype.is_float else cast(value, i32)
        return cast(bits, i64)

    above = apply("shift_left", wide(high), constant(32))
    return apply("or", above, apply("and", wide(low), constant((1 << 32) - 1)))


def unpacked(word: Node, dtypes: tuple[DType, ...]) -> tuple[Node, ...]:
    """The two values of a word, as values of those dtypes in memory are computed."""
    parts = cast(apply("shift_right", word, constant(32)), i32), cast(word, i32)
    both = zip(parts, dtypes, strict=True)
    return tuple(apply("float_of", p) if d.is_float else cast(p, d.compute) for p, d in both)
