"""What torch assumed of sizes while it traced, as conditions in C.

conditions(captured, shape_env)       # [("s0 % 2 == 0", "weft_rest(s0, 2) == 0")]
"""

import re
from collections.abc import Mapping
from typing import Any

import sympy
from sympy.core.relational import Eq, Ne, Relational
from torch.utils._sympy.printers import PythonPrinter

from weft.core.errors import CaptureError
from weft.core.node import Node
from weft.frontend.graph import Captured
from weft.runtime.sizes import in_c
from weft.scalar.resize import sizes_of

WORDS = {" and ": " && ", " or ": " || ", "not ": "! "}
CALLS = {"max", "min", "weft_rest", "weft_quotient"}


def conditions(captured: Captured, shape_env: Any) -> list[tuple[str, str]]:
    """Guards of sizes that a program reads, each as Python and as C; CaptureError for one that C
    has no terms for."""
    own = {name: node.op.label for name, node in captured.called.items()}  # type: ignore[attr-defined]
    found: dict[str, str] = {}
    for guard in shape_env.guards if sizes_of(captured.graph) else ():
        expr = shape_env.simplify(shape_env.replace(guard.expr))
        if expr in (sympy.true, True) or _holds(expr, captured.called):
            continue
        free = expr.free_symbols
        named = {s: sympy.Symbol(own[s.name], integer=True) for s in free if s.name in own}
        if len(named) < len(free):
            raise CaptureError(
                f"the program takes only sizes with {expr}, and reads not all of them"
            )
        told = PythonPrinter().doprint(expr.xreplace(named))
        found[told] = _in_c(told)
    return [*found.items()]


def _holds(expr: Any, called: Mapping[str, Node]) -> bool:
    """Whether the ranges of sizes say it already: of a size, compared with a number."""
    if not (isinstance(expr, Relational) and expr.lhs.is_Symbol and expr.rhs.is_Integer):
        return False
    symbol: Any = expr.lhs
    node: Any = called.get(symbol.name)
    ends = () if node is None or isinstance(expr, Eq | Ne) else (node.op.low, node.op.high)
    return bool(ends) and all(bool(expr.xreplace({expr.lhs: sympy.Integer(n)})) for n in ends)


def _in_c(text: str) -> str:
    c = in_c(text)
    for word, sign in WORDS.items():
        c = c.replace(word, sign)
    called = set(re.findall(r"([a-zA-Z_][\w.]*)\(", c))
    if not called <= CALLS or not re.fullmatch(r"[\w\s()+\-*%<>=!&|,]*", c) or "**" in c:
        raise CaptureError(f"the program takes only sizes with {text}, which C cannot check")
    return c
