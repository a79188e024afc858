"""What lines of the levels' texts are of: kernels, and tensors by the names they have there.

marks = Marks(levels, log)
marks.spans["tensor"]       # [(5, 6, (0,)), ...]: lines 5 up to 6 are part of kernel 0
marks.values["loop"]        # {"reduce": "t.v3"}: what the loop level calls v3 of the tensor level
Of the torch level, a call is part of the kernels that compute anything between the nearest tensors
around it that both levels name; where source lines tell, of those from its line.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from weft.core.node import Graph, Node, bottom_up
from weft.explain.record import Recording
from weft.levels import VERIFY, Levels
from weft.scalar.nest import Call, Program
from weft.tensor.groups import Group
from weft.tensor.ops import Part, Scalar, View
from weft.tensor.recurrence import CALLS

Span = tuple[int, int, tuple[int, ...]]  # lines from, up to, and the kernels that they are part of

DEFINED = re.compile(r"(\S+) = ")
KERNEL = re.compile(r"kernel (\w+)\(")


@dataclass(frozen=True)
class Names:
    """The names that the text of a graph gives its nodes, and the line of each."""

    graph: Graph
    text: str

    @cached_property
    def lines(self) -> dict[Node, int]:
        inputs = set(self.graph.inputs)
        nodes = (n for n in self.graph.nodes() if n not in inputs and not is_number(n))
        numbers = (i for i, t in enumerate(self.text.split("\n")) if DEFINED.match(t))
        return dict(zip(nodes, numbers, strict=True))

    @cached_property
    def of(self) -> dict[Node, str]:
        lines = self.text.split("\n")
        named = {n: lines[i].partition(" = ")[0] for n, i in self.lines.items()}
        return {n: getattr(n.op, "label", "") for n in self.graph.inputs} | named


def is_number(node: Node) -> bool:
    return isinstance(node.op, Scalar) or node.op.name == "scalar"


def bare(node: Node) -> Node:
    """What a tensor is a view of."""
    while isinstance(node.op, View):
        node = node.args[0]
    return node


def stored_as(groups: Sequence[Group], program: Program, names: dict[Node, str]) -> dict[Node, str]:
    """The buffer of every tensor that a program of these groups stores; both are in one order."""
    found: dict[Node, str] = {}
    left = list(dict.fromkeys(b.name for step in program.steps for b in step.outputs))
    for group in groups:
        for node in group:
            if isinstance(node.op, Part) and isinstance(node.args[0].op, CALLS):
                continue
            stem = re.escape(names.get(node, node.op.name))
            at = next((i for i, b in enumerate(left) if re.fullmatch(rf"{stem}(_\d+)?", b)), None)
            if at is not None:
                found[node] = left.pop(at)
    return found


class Marks:
    """Of one program: spans of lines, and values, by level."""

    def __init__(self, levels: Levels, log: Recording) -> None:
        self.levels = levels
        self.spans: dict[str, list[Span]] = {}
        self.values: dict[str, dict[str, str]] = {}
        at = next(name for name in ("loop", "tile", "kernel") if name in levels.made)
        self.program: Program = levels.program(at)
        self.kernels = {k.name: i for i, k in enumerate(self.program.kernels)}
        buffers: dict[str, str] = {}
        graph = levels.made.get("tensor")
        if graph is not None and log.grouped is not None:
            tensor = Names(graph, levels.text("tensor"))
            stored = stored_as(log.groups, log.grouped, graph.names)
            buffers = {b: f"t.{tensor.of[n]}" for n, b in stored.items() if n in tensor.of}
            inside = self.inside(graph, stored)
            self.spans["tensor"] = joined((i, inside.get(n, ())) for n, i in tensor.lines.items())
            self.values["tensor"] = {name: f"t.{name}" for name in tensor.of.values()}
            if "torch" in levels.made:
                self.of_torch(tensor, inside)
        named = {b.name for b in self.program.buffers()}
        inputs = {b.name: f"t.{b.name}" for b in self.program.inputs}
        self.buffers = {b: f"b.{b}" for b in sorted(named)} | inputs | buffers
        for level in ("loop", "tile", "kernel"):
            if level in levels.made:
                self.spans[level] = self.of_nests(levels.text(level))
        self.values["loop"] = self.buffers  # and below: buffers keep their names
        self.spans["source"] = self.of_sources()

    def inside(self, graph: Graph, stored: dict[Node, str]) -> dict[Node, tuple[int, ...]]:
        """The kernels that compute a tensor: those whose outputs take it, up to what they read."""
        there = {b.name for s in self.program.each for b in s.outputs}
        kept = {n for n, b in stored.items() if b in there} | set(graph.inputs)
        made = {b: n for n, b in stored.items()}
        found: dict[Node, dict[int, None]] = {}
        for step in (s for s in self.program.each if not isinstance(s, Call)):
            outputs = [made[b.name] for b in step.outputs if b.name in made]
            seen: dict[Node, None] = {}
            for root in outputs:
                below = lambda n, own=outputs: [a for a in n.args if a not in kept or a in own]  # noqa: E731
                bottom_up(root, seen, lambda _: None, below)
            for node in seen:
                found.setdefault(node, {})[self.kernels[step.name]] = None
        return {n: tuple(k) for n, k in found.items()}

    def of_torch(self, tensor: Names, inside: dict[Node, tuple[int, ...]]) -> None:
        """Spans and values of the torch level, by the names that the tensor level has kept."""
        torch = Names(self.levels.made["torch"], self.levels.text("torch"))
        by_name = {name: n for n, name in tensor.of.items()}
        same = {n: by_name[name] for n, name in torch.of.items() if name in by_name}
        same |= dict(zip(torch.graph.outputs, tensor.graph.outputs, strict=True))
        users, ends = torch.graph.users(), {bare(n) for n in same.values()}
        below: dict[Node, frozenset[Node]] = {}  # of a torch node: the nearest tensors from there
        for node in reversed([*torch.graph.nodes()]):
            further = frozenset[Node]().union(*(below[u] for u in users[node]))
            below[node] = frozenset((bare(same[node]),)) if node in same else further
        rows: list[tuple[int, tuple[int, ...]]] = []
        for node, line in torch.lines.items():
            between: dict[Node, None] = {}
            for root in below[node]:
                near = lambda n: [a for a in n.args if a not in ends]  # noqa: E731
                bottom_up(root, between, lambda _: None, near)
            place = torch.graph.origin.get(node)
            own = [n for n in between if tensor.graph.origin.get(n) == place]
            kernels = {k: None for n in own or between for k in inside.get(n, ())}
            rows.append((line, tuple(sorted(kernels))))
        self.spans["torch"] = joined(rows)
        known = {n: f"t.{tensor.of[t]}" for n, t in same.items() if t in tensor.of}
        self.values["torch"] = {name: known.get(n, f"a.{name}") for n, name in torch.of.items()}

    def of_nests(self, text: str) -> list[Span]:
        """A kernel is from its header up to the next empty line, or the end of the program."""
        spans: list[Span] = []
        lines = text.split("\n")
        heads = [(i, m[1]) for i, line in enumerate(lines) if (m := KERNEL.match(line))]
        for start, name in heads:
            stop = start
            while stop < len(lines) and lines[stop] and not lines[stop].startswith("output "):
                stop += 1
            spans.append((start, stop, (self.kernels[name],)))
        return spans

    def of_sources(self) -> list[Span]:
        """The text of a symbol is of all kernels that share it."""
        spans: list[Span] = []
        start = 0
        for symbol, text in self.levels.sources.items():
            stop = start + len(text.split("\n"))
            names = (k for k, s in self.levels.symbols.items() if s == symbol)
            spans.append((start, stop, tuple(self.kernels[k] for k in names if k in self.kernels)))
            start = stop
        return spans


def joined(rows: Iterable[tuple[int, tuple[int, ...]]]) -> list[Span]:
    """Lines with their kernels as spans: neighbours of the same kernels are one."""
    spans: list[Span] = []
    for line, kernels in rows:
        if not kernels:
            continue
        if spans and spans[-1][1:] == (line, kernels):
            spans[-1] = (spans[-1][0], line + 1, kernels)
        else:
            spans.append((line, line + 1, kernels))
    return spans


SHOWN = (*VERIFY, "source")  # the six levels
