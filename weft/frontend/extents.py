"""Sizes of torch's tracing as weft's: a SymInt is a Size over symbols, by torch's own reasoning.

extent(x.shape[0])              # 13, or the size s0
settle(shape_env, symbols)      # those of one program, as s0, s1, ... with their ranges
Torch's ShapeEnv keeps what is known of a symbol, and makes guards of what is asked.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any
from weakref import WeakKeyDictionary

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import StrictMinMaxConstraint
from torch.utils._sympy import functions

from weft.core.errors import CaptureError
from weft.core.node import Node
from weft.scalar.ops import Constant, Symbol, constant, function_of, make
from weft.scalar.sizes import Size, Undecided, form, larger, smaller, symbols
from weft.scalar.symbols import difference

# A size is taken to be at most 2**16, unless it is more when the program is compiled; less where
# a tensor has so many that their product could be more than 2**60: no index overflows.
CAP, PRODUCT = 16, 60  # bits
MOST = (1 << 31) - 1
# While a program is traced, before all is known of its symbols: neither 0 nor 1, and no bound that
# `settle` could exceed.
OPEN = (2, MOST)

_known: WeakKeyDictionary[Any, dict[str, Node]] = WeakKeyDictionary()  # by ShapeEnv


def is_symbolic(size: Any) -> bool:
    """Whether no guard has made a number of it."""
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None


def extent(value: Any) -> Any:
    """An int, or the Size of a SymInt; CaptureError for one that weft has no terms for."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    node = value.node
    number = node.maybe_as_int()
    return _of(node.expr, node.shape_env) if number is None else number


def _of(expr: Any, shape_env: Any) -> Any:
    known = _known.setdefault(shape_env, {})
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Symbol):
        if expr.name not in known:
            number = _bounded(expr, shape_env)
            if number is not None:
                return number
            bounds = shape_env.bound_sympy(expr)
            low, high = int(max(bounds.lower, OPEN[0])), int(min(bounds.upper, OPEN[1]))
            known[expr.name] = make(Symbol(expr.name, low, high, low))
        return Size(known[expr.name])
    if isinstance(expr, functions.TruncToInt):
        return _scaled(expr, shape_env)
    rule = RULES.get(type(expr))
    if rule is None:
        raise CaptureError(f"a size of the form {expr}")
    return rule(*(_of(a, shape_env) for a in expr.args))


def _bounded(symbol: Any, shape_env: Any) -> int | None:
    """Guards that keep a symbol within OPEN, on which all terms count; its number outside of it."""
    hint, bounds = shape_env.backed_var_to_val.get(symbol), shape_env.bound_sympy(symbol)
    if hint is None:
        raise CaptureError("a size that depends on what tensors hold")
    if bounds.lower >= OPEN[0] and bounds.upper <= OPEN[1]:
        return None
    if not OPEN[0] <= hint <= OPEN[1]:
        shape_env.evaluate_expr(sympy.Eq(symbol, hint))
        return int(hint)
    for inside in (sympy.Ge(symbol, OPEN[0]), sympy.Le(symbol, OPEN[1])):
        shape_env.evaluate_expr(inside)
    return None


def scaled_exactly(product: Any, shape_env: Any) -> tuple[int, int, Any] | None:
    """(3, 2, x) of 1.5 * x as floats, if x is a positive size and a double holds the product."""
    factor, value = product.as_coeff_Mul()
    over, under = float(factor).as_integer_ratio()
    if not isinstance(value, functions.ToFloat):
        return None
    try:
        size = _of(value.args[0], shape_env)
        return (over, under, size) if size > 0 and abs(over) * size < 1 << 53 else None
    except (CaptureError, Undecided):
        return None


def _scaled(expr: Any, shape_env: Any) -> Any:
    """int(1.5 * x) of a size x as 3 * x // 2."""
    found = scaled_exactly(expr.args[0], shape_env)
    if found is None or found[0] < 0:
        raise CaptureError(f"a size of the form {expr}")
    return found[0] * found[2] // found[1]


def _power(base: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int) or exponent < 0:
        raise CaptureError(f"a size of the form {base} ** {exponent}")
    return math.prod([base] * exponent)


RULES: Mapping[type, Callable[..., Any]] = {
    sympy.Add: lambda *args: sum(args),
    sympy.Mul: lambda *args: math.prod(args),
    sympy.Pow: _power,
    **dict.fromkeys((functions.FloorDiv, functions.CleanDiv), operator.floordiv),
    **dict.fromkeys((functions.Mod, functions.PythonMod), operator.mod),
    functions.Max: lambda *args: reduce(larger, args),
    functions.Min: lambda *args: reduce(smaller, args),
}


def _with_symbols(traced: Iterable[Node], shape_env: Any) -> Iterator[tuple[Node, Any]]:
    """Each size as it was traced, and torch's symbol of it."""
    names = {s.name: s for s in shape_env.var_to_range}
    yield from ((node, names[node.op.label]) for node in traced)  # type: ignore[attr-defined]


def replaced(shape_env: Any, traced: Iterable[Node]) -> dict[Node, Node]:
    """By symbol, or quotient of symbols, what guards of the trace have found it to be."""
    labels = {*map(_label, traced)}
    found: dict[Node, Node] = {}
    for node, symbol in _with_symbols(traced, shape_env):
        known = shape_env.replace(symbol)
        if known != symbol:
            found[node] = constant(_of(known, shape_env))
    for guard in shape_env.guards:
        if isinstance(guard.expr, sympy.Eq) and {*map(str, guard.expr.free_symbols)} <= labels:
            found |= _number(guard.expr, shape_env)
    return found


def _number(equation: Any, shape_env: Any) -> dict[Node, Node]:
    """What (s0 + 2) // 4 - 1 = 3 says of the quotient; nothing where that is not all."""
    try:
        terms, offset = difference(*(form(_of(side, shape_env)) for side in equation.args))
    except CaptureError:
        return {}
    if len(terms) != 1:
        return {}
    ((atom, k),) = terms.items()
    return {atom: constant(-offset // k)} if offset % k == 0 else {}


def settle(shape_env: Any, traced: Sequence[Node], together: int) -> dict[Node, Node]:
    """By symbol as it was traced, the symbol of the program: s0, s1, ... with range and hint.

    A size that torch knows no close bound of is bounded by a guard; `together` are in one tensor.
    What guards of the trace have found it to be a multiple of is its divisor.
    """
    settled, usual = dict[Node, Node](), 1 << min(CAP, PRODUCT // max(together, 1))
    for number, (node, symbol) in enumerate(_with_symbols(traced, shape_env)):
        hint = int(getattr(shape_env, "optimization_hint", shape_env.size_hint)(symbol))
        cap = usual if hint <= usual and not has_ranges(shape_env) else MOST
        if shape_env.bound_sympy(symbol).upper > cap:
            shape_env.evaluate_expr(sympy.Le(symbol, cap))
        bounds = shape_env.bound_sympy(symbol)
        rests = (m.args for m in shape_env.divisible if m.args[0] == symbol)  # those that are 0
        step = math.lcm(*(int(by) for _, by in rests if by.is_Integer))
        low, high = -(-int(bounds.lower) // step) * step, min(int(bounds.upper), cap) // step * step
        settled[node] = make(Symbol(f"s{number}", low, high, hint, step))
    return settled


@dataclass(frozen=True)
class Source:
    """Where a call finds a size: among its inputs, or as a dimension of one."""

    position: int
    dimension: int | None = None
    strides: bool = False  # of the dimension: the step along it, in place of its length

    def of(self, inputs: Sequence[Any]) -> Any:
        x = inputs[self.position]
        if self.dimension is None:
            return x
        return (x.stride() if self.strides else x.shape)[self.dimension]


def sources(inputs: Sequence[Any]) -> dict[Node, Source]:
    """By symbol, the first place that is no more than the symbol."""
    tensors = [(i, x) for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
    places = [(x, Source(i)) for i, x in enumerate(inputs) if isinstance(x, torch.SymInt)]
    places += [(n, Source(i, d)) for i, x in tensors for d, n in enumerate(x.shape)]
    places += [(n, Source(i, d, True)) for i, x in tensors for d, n in enumerate(x.stride())]
    found: dict[Node, Source] = {}
    for value, source in places:
        size = extent(value)
        if isinstance(size, Size) and isinstance(size.term.op, Symbol):
            found.setdefault(size.term, source)
    return found


def has_ranges(shape_env: Any) -> bool:
    """Whether the caller gave a size a range of its own: mark_dynamic(x, 0, min=2, max=64)."""
    return any(isinstance(c, StrictMinMaxConstraint) for c in _constraints(shape_env))


def _constraints(shape_env: Any) -> Iterator[Any]:
    """Those of sizes that the caller has marked, which torch lets nobody fix."""
    known = [t.symbolic_context for t in shape_env.tracked_fakes or ()]
    sizes = (c for s in known for c in getattr(s, "constraint_sizes", None) or ())
    return (c for c in sizes if not getattr(c, "warn_only", True))


def narrow(error: BaseException, inputs: Sequence[Any], settled: Mapping[Node, Source]) -> str:
    """Guard what the sizes that an error tells of are now: what became of them, "" for nothing.

    Their range where a bound decides what was asked, else their number. Neither where the caller
    has marked one, by mark_dynamic: it may be that one.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Undecided):
        cause = cause.__cause__
    shape_env = shape_env_of(inputs)
    if cause is None or has_ranges(shape_env):
        return ""
    places, names = {**sources(inputs), **settled}, {_label(n): n for n in settled}
    own = ((n, n if n in places else names.get(_label(n))) for n in symbols(cause.term))
    found = {n: places[known].of(inputs) for n, known in own if known is not None}
    if len(found) == len(symbols(cause.term)) and _bound(cause, found, shape_env):
        return "has a range"
    if not found or any(_constraints(shape_env)):
        return ""
    for n in found.values():
        int(n)
    return "is fixed"


def _label(symbol: Node) -> str:
    return symbol.op.label  # type: ignore[attr-defined]


def _bound(asked: Undecided, sizes: Mapping[Node, Any], shape_env: Any) -> bool:
    """Guard the answer, as it is now; whether torch learns of a symbol by it."""

    def known() -> list[Any]:
        return [(shape_env.replace(n), shape_env.bound_sympy(n)) for n in shape_env.var_to_range]

    before, value = known(), _symint(asked.term, sizes)
    if not isinstance(value, torch.SymInt) or asked.sign not in SIGNS:
        return False
    equal = len(sizes) > 1 and value.node.hint == 0  # torch gives equal sizes one symbol, too
    bool(SIGNS["!=" if equal else asked.sign](value, 0))
    if known() == before:
        return False
    _known.pop(shape_env, None)  # terms over symbols of wider ranges
    return True


def _symint(term: Node, sizes: Mapping[Node, Any]) -> Any:
    """The size as torch's; None where it has no such function."""
    if isinstance(term.op, Constant) or term in sizes:
        return sizes.get(term, getattr(term.op, "value", None))
    args = [_symint(a, sizes) for a in term.args]
    function = SYMINTS.get(function_of(term) or "")
    return None if function is None or None in args else function(*args)


SIGNS = {"<": operator.lt, "<=": operator.le, "!=": operator.ne}
SYMINTS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "multiply": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "minimum": torch.sym_min,
    "maximum": torch.sym_max,
}


def with_free_sizes(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> list[Any]:
    """The examples; in place of one whose sizes are free the fake tensor that the graph has of it.

    Dynamo hands over tensors as the caller passed them.
    """
    placeholders = graph.graph.find_nodes(op="placeholder")
    told = [p.meta.get("example_value", p.meta.get("val")) for p in placeholders]
    if len(told) != len(examples):  # some callers pass fewer, and no free sizes
        return [*examples]
    for fake, x in zip(told, examples, strict=True):
        for free, now in zip(_sizes(fake), _sizes(x), strict=False):
            if is_unbacked(free) and isinstance(now, int):  # of mark_unbacked: it is known by now
                free.node.shape_env.add_backed_var_to_val(free.node.expr, now)
    pairs = zip(told, examples, strict=True)
    return [x if shape_env_of([fake]) is None else fake for fake, x in pairs]


def is_unbacked(value: Any) -> bool:
    """Whether a size, or one of a tensor or of tensors, depends on what tensors hold."""
    values = value if isinstance(value, (tuple, list)) else [value]
    free = [n.node for x in values for n in _sizes(x) if isinstance(n, torch.SymInt)]
    known = (n.shape_env.backed_var_to_val for n in free)
    return any(not n.expr.free_symbols <= k.keys() for n, k in zip(free, known, strict=True))


def _sizes(x: Any) -> Sequence[Any]:
    return (*x.shape, *x.stride()) if isinstance(x, torch.Tensor) else (x,)


def shape_env_of(inputs: Sequence[Any]) -> Any:
    """The ShapeEnv behind the sizes of inputs; None where all are numbers."""
    free = (n for x in inputs for n in _sizes(x) if isinstance(n, torch.SymInt))
    return next((n.node.shape_env for n in free), None)
