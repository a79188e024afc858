"""The rows of scalar functions in Triton's language.

spelled(FUNCTIONS["add"], (x, y), f32)     # Value("x + y", ...)
A value has a text, the axes of the block that it is a tensor over, and how tightly its text binds.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.core.node import Node
from weft.core.types import DType, boolean, i64
from weft.scalar.ops import CASTS, Function

ATOM, MUL, ADD, SHIFT, AND, XOR, OR, COMPARE = 9, 8, 7, 6, 5, 4, 3, 2
NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "bool": "int1"}


@dataclass(frozen=True)
class Value:
    """What stands for a scalar term of a nest.

    axes   those of the block that it is a tensor over, in the order of its dimensions
    binds  how tightly: of a name, a call or a literal ATOM
    small  it is an i64 that Triton has as an int32, as block and lane numbers are
    zero   axes: where one of these is past its end, the value is 0
    """

    text: str
    axes: tuple[Node, ...] = ()
    binds: int = ATOM
    small: bool = False
    zero: frozenset[Node] = frozenset()

    def inside(self, binds: int) -> str:
        """The text where operands bind as tightly as that."""
        return self.text if self.binds >= binds else f"({self.text})"

    def over(self, axes: Sequence[Node], binds: int = 0) -> str:
        """The text as a tensor that broadcasts with others over these axes."""
        if not self.axes or self.axes == tuple(axes):
            return self.inside(binds)
        index = ", ".join(":" if a in self.axes else "None" for a in axes)
        return f"{self.inside(ATOM)}[{index}]"


def type_name(dtype: DType) -> str:
    """tl.float32 of f32."""
    digits = dtype.name[1:]
    kind = {"int": "int", "uint": "uint"}.get(dtype.kind, "")
    return f"tl.{NAMES.get(dtype.name) or kind + digits}"


def literal(value: float | bool, dtype: DType) -> Value:
    """A constant; one that Triton would round, or has no literal for, says its type."""
    if dtype is boolean:
        return Value(str(bool(value)))
    if not dtype.is_float:
        fits = -(2**31) <= int(value) < 2**31
        return Value(
            str(int(value)), binds=ATOM if value >= 0 else ADD, small=dtype is i64 and fits
        )
    text = repr(float(value))
    if not math.isfinite(value):
        text = f'float("{text}")'
    held = not math.isfinite(value) or abs(value) < 3e38
    if dtype.bits == 64 and not (held and struct.unpack("f", struct.pack("f", value))[0] == value):
        return _typed(Value(text), dtype)
    return Value(text, binds=ADD if text.startswith("-") else ATOM)


def is_number(value: Value) -> bool:
    """Whether it is a literal, which takes the type of what it meets."""
    try:
        float(value.text)
    except ValueError:
        return value.text.startswith('float("') or value.text in ("True", "False")
    return True


# Infix operators, by the kind of the arguments' dtype, and how tightly each binds.
INFIX: dict[str, dict[str, str]] = {
    "add": {"float": "+", "int": "+", "uint": "+", "bool": "|"},
    "subtract": {"float": "-", "int": "-", "uint": "-"},
    "multiply": {"float": "*", "int": "*", "uint": "*", "bool": "&"},
    "and": dict.fromkeys(("int", "uint", "bool"), "&"),
    "or": dict.fromkeys(("int", "uint", "bool"), "|"),
    "xor": dict.fromkeys(("int", "uint", "bool"), "^"),
    **{
        name: dict.fromkeys(("float", "int", "uint", "bool"), sign)
        for name, sign in zip("eq ne lt le gt ge".split(), "== != < <= > >=".split(), strict=True)
    },
}
BINDS = {"+": ADD, "-": ADD, "*": MUL, "&": AND, "|": OR, "^": XOR}  # a comparison: COMPARE
ANY = "float int uint bool"
# Calls, by name: the kinds they are for, and the text. `tl.` functions come from Triton, libdevice
# ones from NVIDIA's and AMD's libraries; those without a dot are HELPERS, printed where used.
CALLS: dict[str, tuple[tuple[str, str], ...]] = {
    "maximum": (("float", "maximum({0}, {1})"), ("int uint", "tl.maximum({0}, {1})"),
                ("bool", "({0} | {1})")),
    "minimum": (("float", "minimum({0}, {1})"), ("int uint", "tl.minimum({0}, {1})"),
                ("bool", "({0} & {1})")),
    "where": ((ANY, "tl.where({0}, {1}, {2})"),),
    "fma": (("float", "tl.fma({0}, {1}, {2})"),),
    "divide": (("f32", "tl.div_rn({0}, {1})"), ("float", "({0} / {1})")),
    "reciprocal": (("f32", "tl.div_rn(1.0, {0})"), ("float", "(1.0 / {0})")),
    "sqrt": (("f32", "tl.sqrt_rn({0})"), ("float", "tl.sqrt({0})")),
    "absolute": (("float int", "tl.abs({0})"), ("uint", "{0}")),
    "negate": (("float", "({0} * -1.0)"), ("int uint", "(0 - {0})")),
    "relu": (("float", "maximum({0}, 0.0)"), ("int", "tl.maximum({0}, 0)"),
             ("uint", "{0}")),
    "not": (("bool", "({0} == 0)"), ("int", "(~{0})"), ("uint", "({0} ^ {ones})")),
    "sigmoid": (("float", "tl.sigmoid({0})"),),
    "round": (("float", "libdevice.rint({0})"),),
    "power": (("float", "libdevice.pow({0}, {1})"), ("int uint", "integer_power({0}, {1})")),
    "round_f16": (("float", "tl.cast(tl.cast({0}, tl.float16), tl.float32)"),),
    "round_bf16": (("float", "tl.cast(tl.cast({0}, tl.bfloat16), tl.float32)"),),
    "bits": (("f32", "tl.cast({0}, tl.int32, bitcast=True)"),
             ("f64", "tl.cast({0}, tl.int64, bitcast=True)")),
    "float_of": (("i32", "tl.cast({0}, tl.float32, bitcast=True)"),
                 ("i64", "tl.cast({0}, tl.float64, bitcast=True)")),
    "philox": (("i64", "philox({0}, {1})"),),
    "floordiv": (("int uint", "floordiv({0}, {1})"),),
    "truncdiv": (("int uint", "truncdiv({0}, {1})"),),
    "floormod": (("int uint", "floormod({0}, {1})"), ("float", "floormod_float({0}, {1})")),
    "fmod": (("int uint", "rest({0}, {1})"), ("float", "libdevice.fmod({0}, {1})")),
    "shift_left": (("int uint", "shift_left({0}, {1}, {bits})"),),
    "shift_right": (("int", "shift_right({0}, {1}, {bits})"),
                    ("uint", "shift_right_unsigned({0}, {1}, {bits})")),
    **{name: (("float", f"tl.{name}({{0}})"),)
       for name in "rsqrt exp exp2 log log2 sin cos erf floor ceil".split()},
    **{name: (("float", f"libdevice.{name}({{0}})"),)
       for name in """expm1 log10 log1p tanh erfc lgamma tan asin acos atan sinh cosh trunc erfinv
       erfcx""".split()},
    "atan2": (("float", "libdevice.atan2({0}, {1})"),),
    **{name: (("float", f"libdevice.{call}({{0}})"),) for name, call in {
        "bessel_j0": "j0", "bessel_j1": "j1", "bessel_y0": "y0", "bessel_y1": "y1",
        "modified_bessel_i0": "cyl_bessel_i0", "modified_bessel_i1": "cyl_bessel_i1",
        "ndtri": "normcdfinv"}.items()},
}  # fmt: skip
# Functions of i64 that stay an int32 where all arguments are.
OF_INDEX = {*"add subtract multiply floordiv floormod truncdiv minimum maximum where".split()}
COMPARISONS = {*"eq ne lt le gt ge".split()}


def spelled(
    function: Function,
    args: Sequence[Value],
    dtype: DType,
    order: Sequence[Node],
) -> Value | None:
    """A function of values of a dtype (of `where`, that of its values); None without a row.

    `order` is that of the axes of a result.
    """
    name = function.name
    axes = tuple(a for a in order if any(a in v.axes for v in args))
    if isinstance(function.result, DType) and CASTS.get(function.result) is function:
        return _cast(args[0], dtype, function.result)
    values = args[name == "where" :]
    if dtype is i64 and name not in OF_INDEX | COMPARISONS:
        args = tuple(full(v, dtype) for v in args)
    stays = dtype is i64 and name in OF_INDEX and all(v.small for v in values)
    if sign := INFIX.get(name, {}).get(dtype.kind):
        return Value(_infix(sign, dtype, args, axes), axes, BINDS.get(sign, COMPARE), stays)
    rows = CALLS.get(name, ())
    text = next((t for kinds, t in rows if {dtype.kind, dtype.name} & {*kinds.split()}), None)
    if text is None:
        return None
    # Functions take literals for f32 and i32: of f64 libdevice has others, and sums of i8 wrap.
    small = dtype.is_integer and dtype.bits < 32
    if small or (dtype.bits == 64 and "libdevice" in text):
        args = [_typed(a, dtype) if is_number(a) else a for a in args]
    texts = [a.over(axes, ATOM if text.startswith(("(", "{")) else 0) for a in args]
    if name == "where" and all(map(is_number, values)):
        text = f"tl.cast({text}, {type_name(dtype)})"
    return Value(text.format(*texts, bits=dtype.bits, ones=2**dtype.bits - 1), axes, small=stays)


def _infix(sign: str, dtype: DType, args: Sequence[Value], axes: Sequence[Node]) -> str:
    left = BINDS.get(sign, OR)
    regroups = sign in "&|^" or (sign == "+" and not dtype.is_float)  # x + (y - z) is x + y - z
    right = left + (sign in BINDS and not regroups)
    return f"{args[0].over(axes, left)} {sign} {args[1].over(axes, right)}"


def _typed(number: Value, dtype: DType) -> Value:
    return Value(f"tl.full([], {number.text}, {type_name(dtype)})")


def full(value: Value, dtype: DType) -> Value:
    """An i64 that is an int32 as an int64; any other value as it is."""
    if not (value.small and dtype is i64):
        return value
    return replace(value, text=f"tl.cast({value.text}, tl.int64)", binds=ATOM, small=False)


def _cast(x: Value, source: DType, target: DType) -> Value:
    """A conversion: towards zero, of NaN and what no i64 holds 0, of more bits the lowest ones."""
    if source is target:
        return x
    if target is boolean:
        return replace(x, text=f"{x.inside(OR)} != 0", binds=COMPARE, small=False)
    text = x.text
    if source.is_float and target.is_integer:
        text = f"to_integer({text})"
        if target is i64:
            return replace(x, text=text, binds=ATOM, small=False)
    if target.is_float and target.bits == 16 and source.name != "f32":
        text = f"tl.cast({text}, tl.float32)"  # by f32, as everywhere in weft
    zero = x.zero if source.is_float or source.is_integer else frozenset[Node]()
    return Value(f"tl.cast({text}, {type_name(target)})", x.axes, zero=zero)
