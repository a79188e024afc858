"""Spellings of C: types, functions, literals, reserved words; a C-like language is such a table.

function_name(FUNCTIONS["multiply"], [f32, f32], 16, ["v0", "v1"])     # mul_f32x16(v0, v1)
"""

import math
import re

from weft.core.types import DType, ScalarType, boolean, f32, i64
from weft.scalar.ops import CASTS, Function

C_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while asm typeof linux unix i386 NULL args p begin end worker "
    "turn lane scratch memcpy memset main".split()
)
# dtypes, functions of the headers (exp_f32x16, boolx8), and what standard headers define
OF_HEADERS = re.compile(r"(.*_)?(b?f|[iu])\d+(e\d+m\d+(fn)?)?(x\d+u?)?|(.*_)?bool(x\d+)?|.*_t")
PREFIXES = re.compile(r"_|\d|weft|WEFT|U?INT|$")

# functions whose C name is not their own; the rest are op_dtype as they are
RENAMED = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "truncdiv": "div",
    "negate": "neg",
    "absolute": "abs",
    "power": "pow",
    "shift_left": "shl",
    "shift_right": "shr",
    "where": "select",
}
OF_BOOL = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and", "ne": "xor"}


class Names:
    """C identifiers, one for each name of each kind; those that C or the headers use get a tail.

    names.of("in")          # in
    names.of("exp_f32")     # exp_f32_
    names.of("α"), names.of("β")    # n_, n__
    """

    def __init__(self) -> None:
        self.given: dict[tuple[str, str], str] = {}
        self.taken: set[str] = set()

    def of(self, name: str, kind: str = "buffer") -> str:
        if (kind, name) not in self.given:
            self.given[kind, name] = self.fresh(name)
        return self.given[kind, name]

    def fresh(self, name: str) -> str:
        """The name as C allows it, and as nothing else is called."""
        plain = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
        plain = f"n{plain}" if PREFIXES.match(plain) else plain
        while plain in self.taken or plain in C_KEYWORDS or OF_HEADERS.fullmatch(plain):
            plain += "_"
        self.taken.add(plain)
        return plain


def register(dtype: DType) -> DType:
    """The type of a value in a register: floats of 16 and 8 bits are f32 there."""
    return dtype.compute.word


def suffix(dtype: DType, lanes: int) -> str:
    return f"{register(dtype)}x{lanes}" if lanes > 1 else str(register(dtype))


def c_type(type_: ScalarType) -> str:
    is_bool = register(type_.dtype) is boolean
    return f"boolx{type_.lanes}" if is_bool else suffix(type_.dtype, type_.lanes)


def element(dtype: DType) -> str:
    """The type of a buffer's elements in memory."""
    return "u8" if dtype is boolean else str(dtype.word)


def literal(value: int | float | bool, dtype: DType) -> str:
    """The value as a C constant of that type."""
    if dtype is boolean:
        return "-1" if value else "0"
    if dtype.is_float:
        if math.isnan(value):
            return f'(({dtype})__builtin_nan(""))'
        if math.isinf(value):
            sign = "-" if value < 0 else ""
            return f"({sign}({dtype})__builtin_inf())"
        return f"{float(value)!r}{'f' if dtype is f32 else ''}"
    if dtype is i64 and value == -(2**63):
        return "(-9223372036854775807 - 1)"
    return str(int(value))


def function_name(function: Function, dtypes: list[DType], lanes: int, args: list[str]) -> str:
    """A call of the vector function that computes `function`."""
    width = f"x{lanes}" if lanes > 1 else ""
    name = function.name
    source = dtypes[-1]
    if isinstance(function.result, DType) and function in CASTS.values():
        target = function.result.compute
        if function.result is not target:  # such a float in a register: f32, rounded
            inner = args[0] if source is f32 else f"cast_{source}_f32{width}({args[0]})"
            return f"round_{function.result}_f32{width}({inner})"
        return args[0] if source is target else f"cast_{source}_{target}{width}({args[0]})"
    if name == "relu":
        return f"maximum_{source}{width}({args[0]}, splat_{source}{width}({literal(0, source)}))"
    if name == "reciprocal":
        return f"div_{source}{width}(splat_{source}{width}({literal(1, source)}), {args[0]})"
    if source is boolean and name in OF_BOOL:
        name = OF_BOOL[name]
    return f"{RENAMED.get(name, name)}_{source}{width}({', '.join(args)})"
