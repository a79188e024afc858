"""A program for any size as the program for some sizes: symbols replaced wherever they occur.

with_sizes(program, {s0: constant(13)})     # of any level; f32[s0,64] becomes f32[13,64]
sizes_of(program)                           # the symbols that it has, by label
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

from weft.core.node import Graph, Node, make, require
from weft.core.types import ScalarType, i64
from weft.scalar.nest import Rows
from weft.scalar.ops import Apply, Constant, Symbol, constant, evaluate_term
from weft.scalar.sizes import Size, size, symbols
from weft.scalar.structure import Substitution

T = TypeVar("T")
U = TypeVar("U")

PLAIN = {int, str, float, bool, type(None)}  # have no sizes: most of what is in ops and types


class Resize(Substitution):
    """Replaces symbols, in sizes too; index arithmetic on numbers alone becomes a number."""

    def of(self, value: Any) -> Any:
        if isinstance(value, Size):
            return size(self.of(value.term))
        return self.graph(value) if isinstance(value, Graph) else super().of(value)

    def node(self, node: Node) -> Node:
        args = [self.known[a] for a in node.args]
        number = type(node.op) is Apply and node.type == ScalarType(i64)
        if number and all(isinstance(a.op, Constant) for a in args):
            return constant(int(node.op.evaluate(*(a.op.evaluate() for a in args))))
        return super().node(node)

    def graph(self, graph: Graph) -> Graph:
        inputs, outputs = self.of(graph.inputs), self.of(graph.outputs)
        names = {self.of(n): name for n, name in graph.names.items()}
        origin = {self.of(n): line for n, line in graph.origin.items()}
        return Graph(graph.level, graph.name, inputs, outputs, names, origin)


def with_sizes(value: T, numbers: Mapping[Node, Node]) -> T:
    """A program, or a part of one, with other terms for some symbols."""
    return Resize(numbers).of(value) if numbers else value


def at_shapes(program: T, shapes: Iterable[Sequence[int]]) -> T:
    """A program of any level at the sizes that inputs of these shapes have; see `sizes_in`."""
    return with_sizes(program, {node: constant(n) for node, n in sizes_in(program, shapes).items()})


def sizes_in(program: Any, shapes: Iterable[Sequence[int]]) -> dict[Node, int]:
    """The sizes of a program, by symbol in its order, that inputs of these shapes have.

    VerifyError for a size outside of its range, or that no input has by itself.
    """
    wanted, found = sizes_of(program), dict[Node, int]()
    for given, shape in zip(program.inputs if wanted else (), shapes, strict=False):
        for extent, n in zip(given.type.shape, shape, strict=False):
            if isinstance(extent, Size) and isinstance(extent.term.op, Symbol):
                s = extent.term.op
                told = f"size {s.label} runs from {s.low} to {s.high}, and {n} was given"
                require(s.low <= n <= s.high and n % s.divisor == 0, told)
                found.setdefault(extent.term, int(n))
    missing = [label for label, node in wanted.items() if node not in found]
    require(not missing, f"no input has the size {', '.join(missing)} by itself")
    return {node: found[node] for node in wanted.values()}


def at_some_sizes(value: T) -> Iterator[T]:
    """The value at its hints, the least sizes, and others; itself where it has no symbols.

    Sizes depend on each other by guards that a program does not tell: others than the hints are
    left out where something is empty then, as an image that is smaller than its window.
    """
    found: dict[Node, Any] = {n: n.op for n in sizes_of(value).values()}
    yield with_sizes(value, {n: constant(s.hint) for n, s in found.items()})
    lengths = {*_sizes(value, set())} if found else set[Node]()
    for more in (0, 5) if found else ():
        least = {n: min(s.low + more * s.divisor, s.high) for n, s in found.items()}
        if all(evaluate_term(length, dict(least)) > 0 for length in lengths):
            yield with_sizes(value, {n: constant(k) for n, k in least.items()})


def hinted(function: Callable[[T], U], sizes: Collection[Node], least: int = 0) -> Callable[[T], U]:
    """The function of what its argument is where every size is its hint, or at least so much."""
    known: dict[Node, Any] = {n: n.op for n in sizes}
    resize = Resize({n: constant(max(s.hint, min(least, s.high))) for n, s in known.items()})
    return (lambda value: function(resize.of(value))) if sizes else function


def hints_of(program: Any) -> dict[str, int]:
    return {label: n.op.hint for label, n in sizes_of(program).items()}  # type: ignore[attr-defined]


def with_hints(value: T, hints: Mapping[str, int]) -> T:
    """The value with these hints for the symbols of some labels."""
    found = {n: hints[label] for label, n in sizes_of(value).items() if label in hints}
    other = {n: make(replace(n.op, hint=hint)) for n, hint in found.items()}  # type: ignore[type-var]
    return with_sizes(value, {n: new for n, new in other.items() if new is not n})


def sizes_of(program: Any) -> dict[str, Node]:
    """The symbols of a program, by label, in alphabetic order; not those of rows of a kernel."""
    return dict(sorted({n.op.label: n for n in symbols(*_sizes(program, set()))}.items()))  # type: ignore[attr-defined]


def sizes_of_rows(program: Any) -> list[Node]:
    """The symbols that rows of its kernels have numbers for."""
    rows = (s for s in getattr(program, "steps", ()) if isinstance(s, Rows))
    return [node for step in rows for node in step.sizes]


def _sizes(value: Any, seen: set[Any]) -> Iterator[Node]:
    """The terms of sizes, and the symbols in other terms."""
    if isinstance(value, Size):
        yield value.term
    elif isinstance(value, Node):
        waiting = [value]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            waiting.extend(node.args)
            if isinstance(node.op, Symbol):
                yield node
            elif node.op not in seen:
                seen.add(node.op)
                yield from _sizes(node.op, seen)
    elif isinstance(value, tuple):
        for part in value:  # type: ignore[reportUnknownVariableType]
            if type(part) not in PLAIN:
                yield from _sizes(part, seen)
    elif isinstance(value, Graph):
        yield from _sizes((*value.inputs, *value.outputs), seen)
    elif isinstance(value, Rows):
        found = symbols(*_sizes((value.kernel, value.rows), seen))
        yield from (node for node in found if node not in value.sizes)
    else:
        for name in _parts(type(value)):
            part = getattr(value, name)
            if type(part) not in PLAIN:
                yield from _sizes(part, seen)


@cache
def _parts(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass; none of another type."""
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()
