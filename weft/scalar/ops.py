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

from weft.core.errors import VerifyError
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
from weft.scalar import meanings

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


FLOAT, INTEGER = ("float",), ("int", "uint")
NUMBER, LOGIC = (*FLOAT, *INTEGER), (*INTEGER, "bool")

# name, arity, meaning, result, domain
add = function("add", 2, np.add, commutative=True)
subtract = function("subtract", 2, np.subtract, domain=NUMBER)
multiply = function("multiply", 2, np.multiply, commutative=True)
divide = function("divide", 2, np.divide, domain=FLOAT, cost=4)
floordiv = function("floordiv", 2, meanings.floordiv, domain=INTEGER, cost=20)
floormod = function("floormod", 2, meanings.floormod, domain=NUMBER, cost=20)
truncdiv = function("truncdiv", 2, meanings.truncdiv, domain=INTEGER, cost=20)
fmod = function("fmod", 2, np.fmod, domain=NUMBER, cost=20)
power = function("power", 2, np.power, domain=NUMBER, cost=40)
fma = function("fma", 3, meanings.fma, domain=FLOAT)  # x y + z, rounded once
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
erf = function("erf", 1, partial(meanings.each, math.erf), domain=FLOAT, cost=24)
erfc = function("erfc", 1, partial(meanings.each, math.erfc), domain=FLOAT, cost=34)
sigmoid = function("sigmoid", 1, lambda x: 1 / (1 + np.exp(-x)), domain=FLOAT, cost=18)
lgamma = function("lgamma", 1, partial(meanings.each, meanings.lgamma), domain=FLOAT, cost=100)
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
bits = function("bits", 1, meanings.bits, "bits", ("f32", "f64"))
float_of = function(
    "float_of",
    1,
    lambda x: np.asarray(x).view(f"f{np.asarray(x).itemsize}"),
    "float",
    ("i32", "i64"),
)
where = function("where", 3, np.where, domain=("float", "int", "uint", "bool", "pair"))
philox = function(
    "philox", 2, meanings.philox, domain=("i64",), cost=80
)  # bits, of a seed and a place
checked_index = function("checked_index", 2, meanings.checked_index, domain=("i64",), cost=2)
checked_divisor = function("checked_divisor", 1, meanings.checked_divisor, domain=INTEGER, cost=2)
NARROW = [d for d in FLOATS if d.bits < 32]
ROUNDS = {d: function(f"round_{d}", 1, meanings.round_to(d), domain=("f32",)) for d in NARROW}
pack_bf16 = function("pack_bf16", 2, meanings.pack_bf16, DTYPES["bf16pair"], ("bf16",), cost=3)
dot_bf16 = function("dot_bf16", 2, meanings.dot_bf16, DTYPES["f32"], ("pair",))
pack_bytes = function("pack_bytes", 4, meanings.pack_bytes, DTYPES["i32"], ("i8", "u8"), cost=6)
dot_bytes = function("dot_bytes", 2, meanings.dot_bytes, DTYPES["i32"], ("i32",))
dot_turned = function("dot_turned", 2, meanings.dot_turned, DTYPES["i32"], ("i32",))
DOTS = {"dot_bf16": "dot_bf16", "dot_bytes": "dot_turned", "dot_turned": "dot_bytes"}  # turned
PACKS = ("pack_bf16", "pack_bytes")
SINGLE = [d for d in DTYPES.values() if d.kind != "pair"]
CASTS = {d: function(str(d), 1, meanings.cast_to(d), d) for d in SINGLE}  # f32(x), i64(x) ...

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
