"""Folds in Triton: the functions of monoids, and reductions and scans along a dimension.

f.reduced(fold, ["x"], 1)                  # ["tl.sum(x, axis=1)"]
f.combined(fold, ["acc0"], ["x"])          # ["acc0 + x"]
A fold that Triton has no name for gets a function of the file, from its monoid's own terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.core.node import Node, bottom_up, make, op_of
from weft.export.triton.terms import Value, literal, spelled
from weft.scalar.monoid import SUM
from weft.scalar.nest import Acc, Fold
from weft.scalar.ops import Apply, Constant, apply


class Folds:
    """Functions of the file that folds call, by name with their text."""

    def __init__(self, problem: Callable[[str], None]) -> None:
        self.problem = problem
        self.texts: dict[str, str] = {}

    def combining(self, fold: Fold) -> str:
        """The name of the function of two states, which the file gets."""
        if fold.monoid.name in ("max", "min") and fold.dtypes[0].is_float:
            return f"{fold.monoid.name}imum"
        name = f"combine_{fold.monoid.name}_{'_'.join(d.name for d in fold.dtypes)}"
        if name not in self.texts:
            x, y = (
                tuple(make(Acc(f"{side}{i}", d)) for i, d in enumerate(fold.dtypes))
                for side in "xy"
            )
            lines, known = list[str](), dict[Node, Value]()
            for node in (*x, *y):
                known[node] = Value(op_of(node, Acc).label)
            for term in fold.monoid.combine(x, y):
                bottom_up(term, known, lambda t: self._line(t, known, lines))
            results = ", ".join(known[t].text for t in fold.monoid.combine(x, y))
            params = ", ".join(known[n].text for n in (*x, *y))
            body = "".join(f"    {line}\n" for line in lines)
            self.texts[name] = f"@triton.jit\ndef {name}({params}):\n{body}    return {results}\n"
        return name

    def _line(self, term: Node, known: dict[Node, Value], lines: list[str]) -> Value:
        if isinstance(term.op, Constant):
            return literal(term.op.value, term.type.dtype)
        function = op_of(term, Apply).function
        args = [known[a] for a in term.args]
        found = spelled(function, args, term.args[-1].type.dtype, ())
        if found is None:
            self.problem(f"{function.name} of {term.args[-1].type.dtype}")
            return Value("None")
        lines.append(f"v{len(lines)} = {found.text}")
        return Value(f"v{len(lines) - 1}")

    def combined(
        self, fold: Fold, x: Sequence[Value], y: Sequence[Value], order: Sequence[Node]
    ) -> str:
        """An expression for the state of both."""
        if fold.monoid.function is not None:
            left, right = (make(Acc(n, fold.dtypes[0])) for n in "xy")
            term = apply(fold.monoid.function, left, right)
            found = spelled(op_of(term, Apply).function, (x[0], y[0]), fold.dtypes[0], order)
            assert found is not None
            return found.text
        axes = tuple(a for a in order if any(a in v.axes for v in (*x, *y)))
        return f"{self.combining(fold)}({', '.join(v.over(axes) for v in (*x, *y))})"

    def reduced(self, fold: Fold, values: Sequence[str], dimension: int) -> str:
        """An expression for the state of all along a dimension."""
        dtype = fold.dtypes[0]
        if fold.monoid is SUM and (dtype.is_float or dtype.bits >= 32):
            return f"tl.sum({values[0]}, axis={dimension})"
        if fold.monoid.name in ("max", "min") and dtype.is_integer and dtype.bits >= 32:
            return f"tl.{fold.monoid.name}({values[0]}, axis={dimension})"
        return self._along("reduce", fold, values, dimension)

    def scanned(self, fold: Fold, values: Sequence[str], dimension: int) -> str:
        """An expression for the states up to each along a dimension."""
        if (
            fold.monoid is SUM
            and (dtype := fold.dtypes[0])
            and (dtype.is_float or dtype.bits >= 32)
        ):
            return f"tl.cumsum({values[0]}, axis={dimension})"
        return self._along("associative_scan", fold, values, dimension)

    def _along(self, how: str, fold: Fold, values: Sequence[str], dimension: int) -> str:
        given = values[0] if len(values) == 1 else f"({', '.join(values)})"
        return f"tl.{how}({given}, {dimension}, {self.combining(fold)})"
