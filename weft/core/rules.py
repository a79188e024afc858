"""Rewrite rules: patterns with wildcards, one row per identity, run bottom-up to a fixpoint.

x, y = wildcards("x y")
rules = RuleSet(vocabulary, [Rule("sub-neg", x - (-y), x + y, soundness="exact")])
graph = rules.rewrite(graph, trace)          # trace counts which rules fired
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from weft.core.errors import WeftError
from weft.core.node import Graph, Node, Nodes, Operators, bottom_up, make, postorder
from weft.core.passes import call_by_name

DEEPEST = 100
Number = int | float | bool
Bindings = dict[str, Node]


class Pattern(Operators):
    """A term with wildcards, built with operators and `call`: what a rule matches or builds."""

    def apply(self, name: str, *args: Any) -> Any:
        return call(name, *args)


@dataclass(frozen=True)
class Wildcard(Pattern):
    """Matches any node, or any constant if `literal`. All its occurrences match the same node."""

    name: str
    literal: bool = False


@dataclass(frozen=True)
class Literal(Pattern):
    """Matches a constant of this value, of any dtype; 0.0 does not match -0.0."""

    value: Number


@dataclass(frozen=True)
class Call(Pattern):
    """Matches a function ("add") or an op ("view") of these arguments; of any if there are none."""

    head: str
    args: tuple[Pattern, ...]


def wildcards(names: str, literal: bool = False) -> tuple[Wildcard, ...]:
    return tuple(Wildcard(n, literal) for n in names.split())


def pattern(term: Pattern | Number) -> Pattern:
    return term if isinstance(term, Pattern) else Literal(term)


def call(head: str, *args: Pattern | Number) -> Call:
    return Call(head, tuple(pattern(a) for a in args))


def function_name(node: Node) -> str | None:
    """The name of the pointwise function that the node applies; None for other ops."""
    function = getattr(node.op, "function", None)
    return None if function is None else function.name


def literal_value(node: Node) -> Number | None:
    """The value of a constant: a node without arguments whose op has a `value`; else None."""
    return None if node.args else getattr(node.op, "value", None)


def same_number(a: Number, b: Number) -> bool:
    """Whether two numbers are equal; 0.0 does not equal -0.0, and NaN equals NaN."""
    if a != a or b != b:
        return a != a and b != b
    return a == b and math.copysign(1, a) == math.copysign(1, b)


def match(form: Pattern, node: Node, found: Bindings) -> Iterator[Bindings]:
    """Yields `found` plus bindings for each match. Commutative arguments match in both orders."""
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
        if not form.args:
            yield found
            return
        yield from _match_all(form.args, node.args, found)
        function = getattr(node.op, "function", None)
        if function is not None and function.commutative and node.args[0] is not node.args[1]:
            yield from _match_all(form.args, node.args[::-1], found)


def _match_all(forms: tuple[Pattern, ...], nodes: Nodes, found: Bindings) -> Iterator[Bindings]:
    if len(forms) == len(nodes) == 0:
        yield found
    elif len(forms) == len(nodes):
        for first in match(forms[0], nodes[0], found):
            yield from _match_all(forms[1:], nodes[1:], first)


@dataclass(frozen=True)
class Vocabulary:
    """How a level builds the nodes of replacements.

    `call(name, *nodes)` applies a pointwise function, and `literal(value, dtype)` is a constant.
    `fit(node, type)` broadcasts a node to exactly this type; None if that is impossible.
    """

    call: Callable[..., Node]
    literal: Callable[[Number, Any], Node]
    fit: Callable[[Node, Any], Node | None]


@dataclass(frozen=True)
class Rule:
    """A rewrite rule: a node that matches `pattern` becomes `replacement`, if `when` holds.

    `replacement` is a pattern, or a function that returns a node (None declines). The parameters
    of the function are wildcards of the pattern, by name, and `node` (the root of the match), `op`
    (the root's op) and `build` (the vocabulary), as far as it needs them. The side condition
    `when` is such a function too: when=lambda x: x.type.dtype.is_float.
    `soundness` says what happens to NaN, Inf, -0.0, rounding and integer wrap-around: it begins
    with "exact" unless floats may round differently; integers stay exact.
    """

    name: str
    pattern: Pattern
    replacement: Pattern | Number | Callable[..., Node | None]
    when: Callable[..., bool] | None = None
    soundness: str = "exact"

    def apply(self, node: Node, build: Vocabulary) -> Node | None:
        """The rewritten node, of the same type; None if the rule does not apply.

        WeftError if the replacement has another dtype.
        """
        for found in match(self.pattern, node, {}):
            values: dict[str, Any] = {**found, "node": node, "op": node.op, "build": build}
            if self.when is not None and not call_by_name(self.when, values):
                continue
            if callable(self.replacement):
                new = call_by_name(self.replacement, values)
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


def _write(form: Pattern, found: Bindings, root: Node, build: Vocabulary) -> Node:
    """The node of a replacement pattern, whose literals get the root's dtype."""
    if isinstance(form, Wildcard):
        return found[form.name]
    if isinstance(form, Literal):
        return build.literal(form.value, root.type.dtype)
    assert isinstance(form, Call)
    return build.call(form.head, *(_write(a, found, root, build) for a in form.args))


class RuleSet:
    """Rules of one vocabulary, tried in order; WeftError if two have one name."""

    def __init__(self, build: Vocabulary, rules: Sequence[Rule]) -> None:
        self.build, self.rules = build, tuple(rules)
        twice = [name for name, n in Counter(r.name for r in rules).items() if n > 1]
        if twice:
            raise WeftError(f"two rules are called {', '.join(twice)}")
        self._index: dict[tuple[str, str | None], tuple[Rule, ...]] = {}

    def candidates(self, node: Node) -> tuple[Rule, ...]:
        """The rules whose pattern has this node's op or function at its root."""
        heads = (node.op.name, function_name(node))
        if heads not in self._index:
            fit = (r for r in self.rules if isinstance(r.pattern, Call) and r.pattern.head in heads)
            self._index[heads] = tuple(fit)
        return self._index[heads]

    def step(self, node: Node, trace: Counter[str]) -> Node | None:
        """The result of the first rule that applies to this node; None if none does."""
        for rule in self.candidates(node):
            new = rule.apply(node, self.build)
            if new is not None:
                trace[rule.name] += 1
                return new
        return None

    def rewrite(self, graph: Graph, trace: Counter[str] | None = None) -> Graph:
        """Rewrites a graph to a fixpoint. New nodes have the origin of the node they replace."""
        run = _Run(self, Counter() if trace is None else trace, dict(graph.origin))
        outputs = tuple(run.normal(r, None) for r in graph.outputs)
        names = {run.done.get(n, n): name for n, name in graph.names.items()} | graph.names
        nodes = [*postorder(*graph.inputs, *outputs)]
        kept = ({n: facts[n] for n in nodes if n in facts} for facts in (names, run.origin))
        return Graph(graph.level, graph.name, graph.inputs, outputs, *kept)


class _Run:
    """The state of one rewrite: the normal form (`done`) and the origin of each node so far."""

    def __init__(self, rules: RuleSet, trace: Counter[str], origin: dict[Node, str]) -> None:
        self.rules, self.trace, self.origin = rules, trace, origin
        self.done: dict[Node, Node] = {}
        self.depth = 0  # of nested rewrites: a cycle of rules ends at DEEPEST, with a correct term

    def normal(self, root: Node, source: str | None) -> Node:
        """The normal form of the root. Nodes without an origin get the origin `source`."""
        return bottom_up(root, self.done, lambda n: self._settle(n, self.origin.get(n, source)))

    def _settle(self, node: Node, source: str | None) -> Node:
        """The normal form of a node; those of its arguments are in `done`."""
        args = tuple(self.done[a] for a in node.args)
        current = node if args == node.args else make(node.op, *args)
        if current in self.done:
            return self.done[current]
        if source is not None:
            self.origin.setdefault(current, source)
        self.done[current] = current  # provisional: rules that lead back to this node stop
        after = self.rules.step(current, self.trace)
        if after is not None and self.depth < DEEPEST:
            self.depth += 1
            self.done[current] = self.normal(after, source)
            self.depth -= 1
        return self.done[current]
