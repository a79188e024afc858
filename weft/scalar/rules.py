"""Rewrite rules of the pointwise functions, a row each, for the maps of the tensor level.

Rule("mul-one", x * 1, x)               # map{multiply}(x, 1.0) is x
`soundness` says what a rule does to NaN, Inf, -0.0, rounding and integer wrap. "exact" keeps every
bit but a NaN's payload. Interning shares subexpressions, so that no rule has to.
"""

import math
from collections.abc import Callable

import numpy as np

from weft.core import rules
from weft.core.node import Node
from weft.core.rules import Rule, Vocabulary, call, literal_value, wildcards
from weft.core.types import DTYPES, DType
from weft.scalar.ops import apply, constant

x, y, z, c = wildcards("x y z c")
a, b = wildcards("a b", literal=True)
Folded = Callable[[Node, Vocabulary], Node | None]


def is_type(*words: str) -> Callable[[Node], bool]:
    """A side condition: x has a dtype of one of these names or kinds."""
    return lambda x: not {x.type.dtype.kind, x.type.dtype.name}.isdisjoint(words)


# Integers and bools: no NaN, no Inf, no -0.0, and arithmetic is exact modulo 2^n.
whole = is_type("int", "uint", "bool", "pair")
integer = is_type("int", "uint")
logical, real, signed = is_type("bool"), is_type("float"), is_type("float", "int")


def fold(node: Node, build: Vocabulary) -> Node | None:
    """f(constants) -> a constant, computed in the dtype of f, as at run time."""
    if not node.args or any(literal_value(n) is None for n in node.args):
        return None
    try:
        with np.errstate(all="ignore"):
            value = node.op.evaluate(*(n.op.evaluate() for n in node.args))
    except (ValueError, ArithmeticError, LookupError):  # a power NumPy refuses, a failed check
        return None
    return build.literal(python_number(value, node.type.dtype), node.type.dtype)


def python_number(value: object, dtype: DType) -> rules.Number:
    """A NumPy value of that dtype as the Python number a literal holds."""
    return dtype.python(np.asarray(value).item())


def combine(node: Node, build: Vocabulary) -> Node | None:
    """`fold`, but None for a float of 16 bits or outside 1e-30..1e30."""
    result = fold(node, build)
    if result is None or not real(node):
        return result
    value = abs(literal_value(result) or 0)
    return result if 1e-30 < value < 1e30 and node.type.dtype.bits > 16 else None


def power_of_two(a: Node) -> bool:
    """Whether |a| is a power of two in 2^-14..2^14: its reciprocal is exact in every float."""
    value = abs(float(literal_value(a) or 0))
    return math.isfinite(value) and 2**-14 <= value <= 2**14 and math.frexp(value)[0] == 0.5


def times_reciprocal(x: Node, a: Node, build: Vocabulary) -> Node:
    return build.call("multiply", x, build.literal(1 / float(literal_value(a) or 1), a.type.dtype))


def regroup(
    outer: str, inner: str, swapped: bool = False, folded: Folded = combine
) -> Callable[..., Node | None]:
    """outer(x, inner(a, b)), or inner(b, a): its two constants folded into one."""

    def write(x: Node, a: Node, b: Node, build: Vocabulary) -> Node | None:
        one = folded(build.call(inner, *((b, a) if swapped else (a, b))), build)
        return None if one is None else build.call(outer, x, one)

    return write


def bound(name: str) -> Callable[..., Node | None]:
    # f(f(x, a), b) -> f(x, f(a, b)), for maximum and minimum
    return regroup(name, name, folded=fold)


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if narrow.kind == "bool" or wide is narrow:
        return True
    if wide.is_float:
        digits = {"f32": 24, "f64": 53}.get(wide.name, 0)
        return wide.bits > narrow.bits if narrow.is_float else narrow.bits <= digits
    alike = wide.kind == narrow.kind and wide.bits >= narrow.bits
    unsigned_fits = narrow.kind == "uint" and wide.kind == "int" and wide.bits > narrow.bits
    return narrow.is_integer and (alike or unsigned_fits)


def cast_same(node: Node) -> Node | None:
    return node.args[0] if rules.function_name(node) == node.args[0].type.dtype.name else None


def cast_cast(node: Node, build: Vocabulary) -> Node | None:
    """d(e(x)) -> d(x) where e holds every value of x, or all three are integers that shrink."""
    inner = node.args[0]
    if rules.function_name(node) not in DTYPES or rules.function_name(inner) not in DTYPES:
        return None
    x, e, d = inner.args[0], inner.type.dtype, node.type.dtype
    shrinks = all(t.is_integer for t in (x.type.dtype, e, d)) and d.bits <= e.bits
    return build.call(d.name, x) if holds(e, x.type.dtype) or shrinks else None


ARITHMETIC = [
    Rule("add-zero", x + 0, x, when=whole, soundness="exact; not for floats: -0.0 + 0.0 is 0.0"),
    Rule("add-negative-zero", x + -0.0, x, soundness="exact"),
    Rule("sub-zero", x - 0, x, soundness="exact: -0.0 - 0.0 is -0.0"),
    Rule("zero-sub", 0 - x, -x, when=whole, soundness="exact; for floats 0.0 - 0.0 is not -0.0"),
    Rule("sub-self", x - x, 0, when=whole, soundness="exact; inf - inf is nan"),
    Rule("add-neg", x + (-y), x - y, when=real, soundness="exact"),
    Rule("add-neg-whole", x + (-y), x - y, when=integer, soundness="exact, both wrap"),
    Rule("sub-neg", x - (-y), x + y, soundness="exact, integers wrap alike"),
    Rule("neg-neg", call("negate", -x), x, soundness="exact"),
    Rule("neg-sub", -(x - y), y - x, when=integer, soundness="exact; floats differ in -0.0"),
    Rule("mul-one", x * 1, x, soundness="exact"),
    Rule("mul-minus-one", x * -1, -x, soundness="exact"),
    Rule("mul-zero", x * 0, 0, when=whole, soundness="exact; nan and inf times 0.0 are nan"),
    Rule("mul-neg-neg", (-x) * (-y), x * y, soundness="exact"),
    Rule("div-one", x / 1, x, soundness="exact"),
    Rule("div-minus-one", x / -1, -x, soundness="exact"),
    Rule("div-neg-neg", (-x) / (-y), x / y, soundness="exact"),
    Rule("div-power-of-two", x / a, times_reciprocal, when=power_of_two),
    Rule("one-div", 1 / x, call("reciprocal", x), soundness="exact: reciprocal is 1 / x"),
    Rule("abs-abs", call("absolute", call("absolute", x)), call("absolute", x)),
    Rule("abs-neg", call("absolute", -x), call("absolute", x), when=signed),
    Rule("square-abs", call("absolute", x) * call("absolute", x), x * x, soundness="exact"),
]


GROUPED = "floats: one rounding fewer, constants in the normal range; integers exact modulo 2^n"
CANCELS = "floats: the exact difference, which subtracting rounds away"
ROUNDED = "floats: within rounding; integers exact modulo 2^n"

REASSOCIATING = [
    Rule("add-add", (x + a) + b, regroup("add", "add"), soundness=GROUPED),
    Rule("sub-add", (x - a) + b, regroup("add", "subtract", swapped=True), soundness=GROUPED),
    Rule("add-sub", (x + a) - b, regroup("add", "subtract"), soundness=GROUPED),
    Rule("sub-sub", (x - a) - b, regroup("subtract", "add"), soundness=GROUPED),
    Rule("mul-mul", (x * a) * b, regroup("multiply", "multiply"), soundness=GROUPED),
    Rule("mul-div", (x * a) / b, regroup("multiply", "divide"), soundness=GROUPED),
    Rule("div-mul", (x / a) * b, regroup("multiply", "divide", swapped=True), soundness=GROUPED),
    Rule("div-div", (x / a) / b, regroup("divide", "multiply"), soundness=GROUPED),
    Rule("rsqrt", call("reciprocal", call("sqrt", x)), call("rsqrt", x), soundness=ROUNDED),
    # Where sigmoid(x) is nearly 1, the difference keeps no digits of it.
    Rule("one-sub-sigmoid", 1 - call("sigmoid", x), call("sigmoid", -x), soundness=CANCELS),
    Rule("sigmoid-sub-one", call("sigmoid", x) - 1, -call("sigmoid", -x), soundness=CANCELS),
    Rule("sigmoid-add-minus-one", call("sigmoid", x) + -1, -call("sigmoid", -x), soundness=CANCELS),
]

LOGIC = [
    Rule("not-not", ~(~x), x),
    Rule("and-self", x & x, x),
    Rule("or-self", x | x, x),
    Rule("xor-self", x ^ x, 0),
    Rule("and-true", x & True, x, when=logical),
    Rule("and-zero", x & 0, 0),
    Rule("or-zero", x | 0, x),
    Rule("or-true", x | True, True, when=logical),
    Rule("xor-zero", x ^ 0, x),
    Rule("and-absorb", x & (x & y), x & y),
    Rule("or-absorb", x | (x | y), x | y),
    Rule("lt-self", call("lt", x, x), False, soundness="exact: nan < nan is false"),
    Rule("gt-self", call("gt", x, x), False, soundness="exact: nan > nan is false"),
    Rule("eq-self", call("eq", x, x), True, when=whole, soundness="exact; nan is not nan"),
    Rule("ne-self", call("ne", x, x), False, when=whole, soundness="exact; nan is not nan"),
    Rule("le-self", call("le", x, x), True, when=whole, soundness="exact; nan <= nan is false"),
    Rule("ge-self", call("ge", x, x), True, when=whole, soundness="exact; nan >= nan is false"),
    Rule("not-eq", ~call("eq", x, y), call("ne", x, y), soundness="exact: nan compares unequal"),
    Rule("not-ne", ~call("ne", x, y), call("eq", x, y), soundness="exact: nan compares unequal"),
    Rule("not-lt", ~call("lt", x, y), call("ge", x, y), when=whole, soundness="exact; not nan"),
    Rule("not-le", ~call("le", x, y), call("gt", x, y), when=whole, soundness="exact; not nan"),
    Rule("not-gt", ~call("gt", x, y), call("le", x, y), when=whole, soundness="exact; not nan"),
    Rule("not-ge", ~call("ge", x, y), call("lt", x, y), when=whole, soundness="exact; not nan"),
]

CHOICE = [
    Rule("where-same", call("where", c, x, x), x),
    Rule("where-true", call("where", True, x, y), x),
    Rule("where-false", call("where", False, x, y), y),
    Rule("where-not", call("where", ~c, x, y), call("where", c, y, x)),
    Rule("where-then", call("where", c, call("where", c, x, y), z), call("where", c, x, z)),
    Rule("where-else", call("where", c, x, call("where", c, y, z)), call("where", c, x, z)),
    Rule("where-bool", call("where", c, True, False), c, when=lambda node: logical(node)),
    Rule("where-not-bool", call("where", c, False, True), ~c, when=lambda node: logical(node)),
    Rule("max-self", call("maximum", x, x), x),
    Rule("min-self", call("minimum", x, x), x),
    Rule("max-absorb", call("maximum", x, call("maximum", x, y)), call("maximum", x, y)),
    Rule("min-absorb", call("minimum", x, call("minimum", x, y)), call("minimum", x, y)),
    Rule("max-least", call("maximum", x, -math.inf), x, soundness="exact: nan stays nan"),
    Rule("min-greatest", call("minimum", x, math.inf), x, soundness="exact: nan stays nan"),
    Rule("max-max", call("maximum", call("maximum", x, a), b), bound("maximum")),
    Rule("min-min", call("minimum", call("minimum", x, a), b), bound("minimum")),
    Rule("relu-relu", call("relu", call("relu", x)), call("relu", x)),
    Rule("relu-abs", call("relu", call("absolute", x)), call("absolute", x), when=real),
]

ROUNDING = [
    Rule(f"{f}-{f}", call(f, call(f, x)), call(f, x)) for f in ("floor", "ceil", "trunc", "round")
]


IDENTITIES = [
    Rule("fold", call("map"), fold, soundness="exact: computed in the dtype itself"),
    Rule("cast-same", call("map"), cast_same),
    Rule("cast-cast", call("map"), cast_cast, soundness="exact: the inner cast keeps all"),
    *ARITHMETIC,
    *LOGIC,
    *CHOICE,
    *ROUNDING,
    *REASSOCIATING,
]
VOCABULARY = Vocabulary(apply, constant, lambda node, type_: None)  # of scalar terms
