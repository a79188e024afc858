"""Rewrite rules: patterns with wildcards, one row per identity, run bottom-up to a fixpoint.

x, y = wildcards("x y")
rules = RuleSet(vocabulary, [Rule("sub-neg", x - (-y), x + y, soundness="exact")])
graph = rules.rewrite(graph, trace)          # trace counts which rules fired
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from weft.core.errors import WeftError
from weft.core.graph import Graph
from weft.core.node import Node, bottom_up, make, postorder
from weft.core.operators import Operators

DEEPEST = 100
Number = int | float | bool
Bindings = dict[str, Node]


class Pattern(Operators):
    """A term with holes, built by operators and `call`."""

    def apply(self, name: str, *args: Any) -> Any:
        return call(name, *args)


@dataclass(frozen=True)
class Wildcard(Pattern):
    """Stands for any node, or with `literal` for any constant; the same one everywhere."""

    name: str
    literal: bool = False


@dataclass(frozen=True)
class Literal(Pattern):
    """A constant of that value, whatever its dtype; 0.0 is not -0.0."""

    value: Number


@dataclass(frozen=True)
class Call(Pattern):
    """A function ("add") or an op ("view") of arguments; `args` None takes any."""

    head: str
    args: tuple[Pattern, ...] | None


def wildcards(names: str) -> tuple[Wildcard, ...]:
    return tuple(Wildcard(n) for n in names.split())


def constants(names: str) -> tuple[Wildcard, ...]:
    return tuple(Wildcard(n, literal=True) for n in names.split())


def pattern(term: Pattern | Number) -> Pattern:
    return term if isinstance(term, Pattern) else Literal(term)


def call(head: str, *args: Pattern | Number) -> Call:
    return Call(head, tuple(pattern(a) for a in args))


def any_call(head: str) -> Call:
    """That op or function with whatever arguments."""
    return Call(head, None)


def function_name(node: Node) -> str | None:
    """Name of the pointwise function the node applies, None for other ops."""
    function = getattr(node.op, "function", None)
    return None if function is None else function.name


def literal_value(node: Node) -> Number | None:
    """The constant a node is, None when it is not one. An op with a `value` is a literal."""
    return None if node.args else getattr(node.op, "value", None)


def same_number(a: Number, b: Number) -> bool:
    """Equal with the sign of zero told apart; a NaN is a NaN."""
    if a != a or b != b:
        return a != a and b != b
    return a == b and math.copysign(1, a) == math.copysign(1, b)


def match(form: Pattern, node: Node, found: Bindings) -> Iterator[Bindings]:
    """Every way the node fits the pattern, commutative arguments in both orders."""
    if isinstance(form, Wildcard):
        bound = found.get(form.name)
        if bound is None and (not form.literal or literal_value(node) is not None):
            yield {**found, form.name: node}
        elif bound is node:
            yield found
    elif isinstance(form, Literal):
        value = literal_value(node)
        if value is not None and same_number(value, form.value):
            yield found
    elif isinstance(form, Call) and form.head in (function_name(node), node.op.name):
        if form.args is None:
            yield found
            return
        yield from _match_all(form.args, node.args, found)
        function = getattr(node.op, "function", None)
        if function is not None and function.commutative and node.args[0] is not node.args[1]:
            yield from _match_all(form.args, node.args[::-1], found)


def _match_all(
    forms: tuple[Pattern, ...], nodes: tuple[Node, ...], found: Bindings
) -> Iterator[Bindings]:
    if len(forms) == len(nodes) == 0:
        yield found
    elif len(forms) == len(nodes):
        for first in match(forms[0], nodes[0], found):
            yield from _match_all(forms[1:], nodes[1:], first)


@dataclass(frozen=True)
class Vocabulary:
    """How a level builds what rules write: function calls, literals, and a node fitted to a type.

    `fit(node, type)` spreads a value over a shape to have exactly that type; None where it cannot.
    """

    call: Callable[..., Node]
    literal: Callable[[Number, Any], Node]
    fit: Callable[[Node, Any], Node | None]


@dataclass(frozen=True)
class Rule:
    """One identity: where `pattern` fits and `when` holds, the term becomes `replacement`.

    `replacement` is a pattern, or a function of wildcards (by parameter name), `node` (the root),
    `op` (its op) and `build` (the vocabulary); None declines. `when` is a function in the same way.
    `reassociates`: floats may round differently; integers stay exact.
    `soundness` says what happens to NaN, Inf, -0.0, rounding and integer wrap.
    """

    name: str
    pattern: Pattern
    replacement: Pattern | Number | Callable[..., Node | None]
    when: Callable[..., bool] | None = None
    reassociates: bool = False
    soundness: str = "exact"

    def apply(self, node: Node, build: Vocabulary) -> Node | None:
        """The rewritten node, of the same type; None when the rule does not apply."""
        for found in match(self.pattern, node, {}):
            values: dict[str, Any] = {**found, "node": node, "op": node.op, "build": build}
            if self.when is not None and not _called(self.when, values):
                continue
            if callable(self.replacement):
                new = _called(self.replacement, values)
            else:
                new = _write(pattern(self.replacement), found, node, build)
            if new is None or new is node:
                continue
            if new.type.dtype is not node.type.dtype:
                raise WeftError(f"rule {self.name} turns {node.type} into {new.type}")
            fitted = new if new.type == node.type else build.fit(new, node.type)
            if fitted is not None:
                return fitted
        return None


@cache
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _called(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """The function on the values it names its parameters after."""
    return function(*(values[p] for p in _parameters(function)))


def _write(form: Pattern, found: Bindings, root: Node, build: Vocabulary) -> Node:
    """A replacement pattern as a node; its literals have the root's dtype."""
    if isinstance(form, Wildcard):
        return found[form.name]
    if isinstance(form, Literal):
        return build.literal(form.value, root.type.dtype)
    assert isinstance(form, Call) and form.args is not None
    return build.call(form.head, *(_write(a, found, root, build) for a in form.args))


class RuleSet:
    """Rules of one vocabulary, indexed by the root's op and function, tried in their order."""

    def __init__(self, build: Vocabulary, rules: Sequence[Rule]) -> None:
        self.build, self.rules = build, tuple(rules)
        twice = [name for name, n in Counter(r.name for r in rules).items() if n > 1]
        if twice:
            raise WeftError(f"two rules are called {', '.join(twice)}")
        self._index: dict[tuple[str, str | None], tuple[Rule, ...]] = {}

    def candidates(self, node: Node) -> tuple[Rule, ...]:
        """The rules whose root is this node's op or function."""
        heads = (node.op.name, function_name(node))
        if heads not in self._index:
            fit = (r for r in self.rules if isinstance(r.pattern, Call) and r.pattern.head in heads)
            self._index[heads] = tuple(fit)
        return self._index[heads]

    def step(self, node: Node, trace: Counter[str] | None = None) -> Node | None:
        """The first rule that applies at this node's root; None when none does."""
        for rule in self.candidates(node):
            new = rule.apply(node, self.build)
            if new is not None:
                if trace is not None:
                    trace[rule.name] += 1
                return new
        return None

    def rewrite(self, graph: Graph, trace: Counter[str] | None = None) -> Graph:
        """The graph at a fixpoint. What a rule makes has the origin of what it replaced."""
        run = _Run(self, trace, dict(graph.origin))
        outputs = tuple(run.normal(r, None) for r in graph.outputs)
        names = {run.done.get(n, n): name for n, name in graph.names.items()} | graph.names
        nodes = [*postorder(*graph.inputs, *outputs)]
        kept = ({n: facts[n] for n in nodes if n in facts} for facts in (names, run.origin))
        return Graph(graph.level, graph.name, graph.inputs, outputs, *kept)


class _Run:
    """One rewriting of some roots: normal forms found so far, and where each node came from."""

    def __init__(self, rules: RuleSet, trace: Counter[str] | None, origin: dict[Node, str]) -> None:
        self.rules, self.trace, self.origin = rules, trace, origin
        self.done: dict[Node, Node] = {}
        self.depth = 0  # of rewrites of rewrites; a loop of rules ends with the term still right

    def normal(self, root: Node, source: str | None) -> Node:
        """The root rewritten; what has no origin of its own comes from `source`."""
        return bottom_up(root, self.done, lambda n: self._settle(n, self.origin.get(n, source)))

    def _settle(self, node: Node, source: str | None) -> Node:
        """The normal form of a node whose arguments have theirs."""
        args = tuple(self.done[a] for a in node.args)
        current = node if args == node.args else make(node.op, *args)
        if current in self.done:
            return self.done[current]
        if source is not None:
            self.origin.setdefault(current, source)
        self.done[current] = current  # for the while: rules that lead back to it stop there
        after = self.rules.step(current, self.trace)
        if after is not None and self.depth < DEEPEST:
            self.depth += 1
            self.done[current] = self.normal(after, source)
            self.depth -= 1
        return self.done[current]
