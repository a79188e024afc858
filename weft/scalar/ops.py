"""Scalar terms of the loop, tile and kernel levels, and the table of pointwise functions.

apply("add", x, constant(1.0, f32))      # a term: a node whose op is Apply(FUNCTIONS["add"])
FUNCTIONS["add"].evaluate(a, b)          # its meaning in NumPy; `map` applies it to tensors
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial, reduce
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from weft.core.errors import DivisionByZero, IndexOutOfRange, VerifyError
from weft.core.node import Node, Op, Operators, bottom_up, make, op, postorder, require
from weft.core.types import (
    DTYPES,
    FLOATS,
    DType,
    ScalarType,
    Symbolic,
    boolean,
    dtype_of_literal,
    i64,
)

Evaluate = Callable[..., Any]


@dataclass(frozen=True)
class Function:
    """A pointwise function: its name, arity, meaning in NumPy (`evaluate`) and dtypes.

    `result` is "same" (as the arguments), "bool", "bits" or "float" (an integer or a float of as
    many bits), or a dtype, as of a cast. `domain` has the kinds or names of the dtypes it takes.
    The first argument of `where` is the bool condition.
    """

    name: str
    arity: int
    evaluate: Evaluate = field(compare=False, repr=False)
    result: str | DType = "same"
    domain: tuple[str, ...] = ("float", "int", "uint", "bool")
    commutative: bool = False
    cost: float = field(default=1.0, compare=False)  # in units of one vector add

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def moves(self) -> bool:
        """Whether it only selects or casts: all that there is for floats of 8 bits."""
        return self.name == "where" or isinstance(self.result, DType)

    @cached_property
    def applied(self) -> Op:
        """The op of its terms."""
        return Apply(self)

    def __call__(self, *args: Any) -> Any:
        """Apply the function to tensors or patterns, and numbers, as Python's operators do."""
        return next(a for a in args if isinstance(a, Operators)).apply(self.name, *args)

    def infer_dtype(self, dtypes: tuple[DType, ...]) -> DType:
        """Result dtype; VerifyError when arity, kinds or dtypes do not fit."""
        if len(dtypes) != self.arity:
            raise VerifyError(f"{self.name} takes {self.arity} arguments, got {len(dtypes)}")
        values = dtypes
        if self.name == "where":
            require(dtypes[0] is boolean, f"where needs a bool condition, got {dtypes[0]}")
            values = dtypes[1:]
        for d in values:
            taken = d.kind in self.domain or d.name in self.domain
            if not taken or (d.is_float and d.bits == 8 and not self.moves):
                raise VerifyError(f"{self.name} does not take {d}")
            if d is not values[0]:
                raise VerifyError(f"{self.name} of {values[0]} and {d}: dtypes differ")
        if isinstance(self.result, DType):
            return self.result
        if self.result in ("bits", "float"):
            return DTYPES[f"{'i' if self.result == 'bits' else 'f'}{values[0].bits}"]
        return boolean if self.result == "bool" else values[0]


FUNCTIONS: dict[str, Function] = {}


def function(name: str, arity: int, evaluate: Evaluate, *args: Any, **keywords: Any) -> Function:
    FUNCTIONS[name] = Function(name, arity, evaluate, *args, **keywords)
    return FUNCTIONS[name]


def _each(one: Callable[[float], float], x: Any) -> Any:
    """Apply a function of one number to every element, in f64."""
    found = np.vectorize(one, otypes=[np.float64])(np.asarray(x, np.float64))
    return found.astype(np.asarray(x).dtype)


def _lgamma(v: float) -> float:
    if abs(v) > 1e305:  # beyond, Python raises
        return math.inf
    return math.inf if v <= 0 and v == math.floor(v) else math.lgamma(v)


def _floormod(x: Any, y: Any) -> Any:
    if np.asarray(x).dtype.kind in "iu":
        return np.where(y == 0, 0, np.mod(x, np.where(y == 0, 1, y)))
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def _floordiv(x: Any, y: Any) -> Any:
    whole = np.floor_divide(x, np.where(y == 0, 1, y))
    return np.where(y == 0, 0, whole).astype(np.asarray(x).dtype)


def _truncdiv(x: Any, y: Any) -> Any:
    safe = np.where(y == 0, 1, y)
    exact = (x - np.fmod(x, safe)) // safe
    return np.where(y == 0, 0, exact).astype(np.asarray(x).dtype)


def _checked_index(i: Any, n: Any) -> Any:
    if np.any((i < 0) | (i >= n)):
        raise IndexOutOfRange
    return np.asarray(i)


def _checked_divisor(x: Any) -> Any:
    if np.any(np.equal(x, 0)):
        raise DivisionByZero
    return np.asarray(x)


def _narrow(x: Any, d: DType) -> Any:
    """A float as d, which saturates where d has no infinity, as torch has it."""
    if d.bits == 8:  # by f32, as everywhere in weft
        x = np.asarray(x, np.float32)
        x = np.clip(x, -448, 448) if d.name == "f8e4m3fn" else x
    return np.asarray(x).astype(d.numpy)


def _round_to(d: DType) -> Evaluate:
    return lambda x: _narrow(x, d).astype(np.float32)


def _cast_to(d: DType) -> Evaluate:
    def cast(x: Any) -> Any:
        x = np.asarray(x)
        if d.is_integer and x.dtype.kind not in "iub":  # C truncation of a finite value
            x = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
            return x.astype(np.int64).astype(d.numpy)
        return (x != 0) if d is boolean else _narrow(x, d) if d.is_float else x.astype(d.numpy)

    return cast


def _fma(x: Any, y: Any, z: Any) -> Any:
    """x y + z in f64, which holds a product of f32 exactly, then in the dtype of the operands."""
    return (np.asarray(x, np.float64) * y + z).astype(np.result_type(x, y, z))


def _bits(x: Any) -> Any:
    x = np.asarray(x)
    return x.view(f"i{x.itemsize}")


def _pack_bf16(low: Any, high: Any) -> Any:
    both = np.stack(np.broadcast_arrays(low, high), -1)  # f64: complex128, else complex64
    wide = both.astype(np.result_type(both.dtype, np.float32))
    return wide.view(np.result_type(wide.dtype, np.complex64))[..., 0]


def _dot_bf16(x: Any, y: Any) -> Any:
    return x.real * y.real + x.imag * y.imag


def _philox(seed: Any, counter: Any) -> Any:
    """Philox4x32-10 (Salmon et al. 2011), the first two words; see library/philox.py."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    seed, counter = (np.asarray(x).astype(np.uint64) for x in (seed, counter))
    c0, c1, c2, c3 = counter & low, counter >> half, counter & np.uint64(0), np.uint64(0)
    k0, k1 = seed & low, seed >> half
    for _ in range(10):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1 = (second >> half) ^ c1 ^ k0, second & low
        c2, c3 = (first >> half) ^ c3 ^ k1, first & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return (c0 | c1 << half).astype(np.int64)


FLOAT, INTEGER = ("float",), ("int", "uint")
NUMBER, LOGIC = (*FLOAT, *INTEGER), (*INTEGER, "bool")

# name, arity, meaning, result, domain
add = function("add", 2, np.add, commutative=True)
subtract = function("subtract", 2, np.subtract, domain=NUMBER)
multiply = function("multiply", 2, np.multiply, commutative=True)
divide = function("divide", 2, np.divide, domain=FLOAT, cost=4)
floordiv = function("floordiv", 2, _floordiv, domain=INTEGER, cost=20)
floormod = function("floormod", 2, _floormod, domain=NUMBER, cost=20)
truncdiv = function("truncdiv", 2, _truncdiv, domain=INTEGER, cost=20)
fmod = function("fmod", 2, np.fmod, domain=NUMBER, cost=20)
power = function("power", 2, np.power, domain=NUMBER, cost=40)
fma = function("fma", 3, _fma, domain=FLOAT)  # x y + z, rounded once
maximum = function("maximum", 2, np.maximum, commutative=True)
minimum = function("minimum", 2, np.minimum, commutative=True)
atan2 = function("atan2", 2, np.arctan2, domain=FLOAT, cost=30)
negate = function("negate", 1, np.negative, domain=NUMBER)
absolute = function("absolute", 1, np.abs, domain=NUMBER)
sqrt = function("sqrt", 1, np.sqrt, domain=FLOAT, cost=6)
rsqrt = function("rsqrt", 1, lambda x: 1 / np.sqrt(x), domain=FLOAT, cost=10)
reciprocal = function("reciprocal", 1, lambda x: 1 / x, domain=FLOAT, cost=4)
relu = function("relu", 1, lambda x: np.maximum(x, np.zeros_like(x)), domain=NUMBER)
exp = function("exp", 1, np.exp, domain=FLOAT, cost=14)
exp2 = function("exp2", 1, np.exp2, domain=FLOAT, cost=12)
expm1 = function("expm1", 1, np.expm1, domain=FLOAT, cost=20)
log = function("log", 1, np.log, domain=FLOAT, cost=16)
log2 = function("log2", 1, np.log2, domain=FLOAT, cost=16)
log10 = function("log10", 1, np.log10, domain=FLOAT, cost=18)
log1p = function("log1p", 1, np.log1p, domain=FLOAT, cost=20)
tanh = function("tanh", 1, np.tanh, domain=FLOAT, cost=20)
erf = function("erf", 1, partial(_each, math.erf), domain=FLOAT, cost=24)
erfc = function("erfc", 1, partial(_each, math.erfc), domain=FLOAT, cost=34)
sigmoid = function("sigmoid", 1, lambda x: 1 / (1 + np.exp(-x)), domain=FLOAT, cost=18)
lgamma = function("lgamma", 1, partial(_each, _lgamma), domain=FLOAT, cost=100)
sin = function("sin", 1, np.sin, domain=FLOAT, cost=20)
cos = function("cos", 1, np.cos, domain=FLOAT, cost=20)
tan = function("tan", 1, np.tan, domain=FLOAT, cost=30)
asin = function("asin", 1, np.arcsin, domain=FLOAT, cost=40)
acos = function("acos", 1, np.arccos, domain=FLOAT, cost=40)
atan = function("atan", 1, np.arctan, domain=FLOAT, cost=30)
sinh = function("sinh", 1, np.sinh, domain=FLOAT, cost=40)
cosh = function("cosh", 1, np.cosh, domain=FLOAT, cost=40)
floor = function("floor", 1, np.floor, domain=FLOAT)
ceil = function("ceil", 1, np.ceil, domain=FLOAT)
trunc = function("trunc", 1, np.trunc, domain=FLOAT)
round_even = function("round", 1, np.round, domain=FLOAT)
bitand = function("and", 2, np.bitwise_and, domain=LOGIC, commutative=True)
bitor = function("or", 2, np.bitwise_or, domain=LOGIC, commutative=True)
bitxor = function("xor", 2, np.bitwise_xor, domain=LOGIC, commutative=True)
bitnot = function("not", 1, np.invert, domain=LOGIC)
shift_left = function("shift_left", 2, np.left_shift, domain=INTEGER)
shift_right = function("shift_right", 2, np.right_shift, domain=INTEGER)
eq = function("eq", 2, np.equal, "bool", commutative=True)
ne = function("ne", 2, np.not_equal, "bool", commutative=True)
lt = function("lt", 2, np.less, "bool")
le = function("le", 2, np.less_equal, "bool")
gt = function("gt", 2, np.greater, "bool")
ge = function("ge", 2, np.greater_equal, "bool")
bits = function("bits", 1, _bits, "bits", ("f32", "f64"))
float_of = function(
    "float_of",
    1,
    lambda x: np.asarray(x).view(f"f{np.asarray(x).itemsize}"),
    "float",
    ("i32", "i64"),
)
where = function("where", 3, np.where, domain=("float", "int", "uint", "bool", "pair"))
philox = function("philox", 2, _philox, domain=("i64",), cost=80)  # bits, of a seed and a place
checked_index = function("checked_index", 2, _checked_index, domain=("i64",), cost=2)
checked_divisor = function("checked_divisor", 1, _checked_divisor, domain=INTEGER, cost=2)
ROUNDS = {  # f32 -> f32: round_f16(x), round_bf16(x) ...
    d: function(f"round_{d}", 1, _round_to(d), domain=("f32",)) for d in FLOATS if d.bits < 32
}
pack_bf16 = function("pack_bf16", 2, _pack_bf16, DTYPES["bf16pair"], ("bf16",), cost=3)
dot_bf16 = function("dot_bf16", 2, _dot_bf16, DTYPES["f32"], ("pair",))  # (a, b), (c, d): ac + bd
SINGLE = [d for d in DTYPES.values() if d.kind != "pair"]
CASTS = {d: function(str(d), 1, _cast_to(d), d) for d in SINGLE}  # f32(x), i64(x) ...

# Functions that only round: without effect where every float is an f64 (`widen`). What is rounded
# to 8 bits is so on purpose, as integers are.
ROUNDINGS = {f for by in (CASTS, ROUNDS) for d, f in by.items() if d.is_float and d.bits > 8}
SAFE = {checked_index: 0, checked_divisor: 1}  # check -> a first argument that passes it


@op("axis")
class Axis(Op):
    """The variable of a `for`, an i64."""

    label: str

    def infer(self) -> ScalarType:
        return ScalarType(i64)


@op("size")
class Symbol(Op):
    """A size that is known when the program is called, an i64: low <= size <= high.

    Prices are those of the size `hint`. `divisor` divides every value.
    """

    label: str
    low: int
    high: int
    hint: int
    divisor: int = 1

    def infer(self) -> ScalarType:
        return ScalarType(i64)


@op("constant")
class Constant(Op):
    """A literal. `value` is a Python int, float or bool; NaNs are equal, -0.0 and 0.0 are not."""

    value: int | float | bool
    dtype: DType

    def infer(self) -> ScalarType:
        return ScalarType(self.dtype)

    def identity(self) -> tuple[str, DType]:
        return repr(self.value), self.dtype  # repr tells -0.0 from 0.0, 1 from 1.0, and nan is nan

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash(self.identity())

    def evaluate(self) -> Any:
        return self.dtype.numpy.type(self.value)


@op("apply")
class Apply(Op):
    """A pointwise function of scalars or vectors; a scalar argument of a vector op is splat."""

    function: Function

    def infer(self, *types: ScalarType) -> ScalarType:
        lanes = {t.lanes for t in types} - {1}
        if len(lanes) > 1:
            raise VerifyError(f"{self.function} of vectors with {sorted(lanes)} lanes")
        dtype = self.function.infer_dtype(tuple([t.dtype for t in types]))
        return ScalarType(dtype, max(lanes, default=1))

    def evaluate(self, *values: Any) -> Any:
        return self.function.evaluate(*values)


def axis(label: str) -> Node:
    return make(Axis(label))


def constant(value: int | float | bool, dtype: DType | None = None) -> Node:
    """A literal; without a dtype an int is i64, a float f32, a bool bool. Of a size, its term."""
    if isinstance(value, Symbolic):
        return value.term
    dtype = dtype or dtype_of_literal(value)
    return _integer(value, dtype) if type(value) is int else _literal(value, dtype)


def _literal(value: int | float | bool, dtype: DType) -> Node:
    return make(Constant(dtype.python(value), dtype))


_integer = lru_cache(maxsize=1 << 12)(_literal)  # of floats, 0.0 would be found for -0.0


def apply(function: Function | str, *args: Node) -> Node:
    return make((FUNCTIONS[function] if isinstance(function, str) else function).applied, *args)


def apply_all(function: Function | str, terms: Iterable[Node]) -> Node:
    """Terms joined by a function of two: f(f(x, y), z) of x, y and z."""
    return reduce(lambda x, y: apply(function, x, y), terms)


def guarded(check: Function, condition: Node, x: Node) -> Node:
    """The argument x of a check, replaced by one that passes where the condition is off."""
    return apply(where, condition, x, constant(SAFE[check], x.type.dtype))


def cast(x: Node, dtype: DType) -> Node:
    return x if x.type.dtype is dtype else apply(CASTS[dtype], x)


def evaluate_term(term: Node, known: dict[Node, Any]) -> Any:
    """Evaluate a term on NumPy arrays. `known` has its variables; it gains all subterms."""
    return bottom_up(term, known, lambda n: n.op.evaluate(*(known[a] for a in n.args)))


def is_index(term: Node) -> bool:
    """Whether a term is arithmetic on axes, sizes and literals alone."""
    if term.type.dtype not in (i64, boolean):
        return False
    return all(isinstance(n.op, Apply | Axis | Constant | Symbol) for n in postorder(term))


def function_of(node: Node) -> str | None:
    """Name of the applied function, None when the node is not an application."""
    return node.op.function.name if isinstance(node.op, Apply) else None


def value_of(node: Node) -> int | float | bool | None:
    """The literal's value, None for anything else."""
    return node.op.value if isinstance(node.op, Constant) else None


_symbolic: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()


def has_symbol(term: Node) -> bool:
    """Whether a term depends on a size that is no number."""

    def compute(node: Node) -> bool:
        return isinstance(node.op, Symbol) or any(_symbolic[a] for a in node.args)

    return type(term.op) is not Axis and bottom_up(term, _symbolic, compute)  # type: ignore[arg-type]


import weft.scalar.special  # noqa: E402, F401  # pyright: ignore[reportUnusedImport]  # their rows
