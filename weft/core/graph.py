"""A graph of whole tensors, at the torch and the tensor level: named inputs, nodes, outputs.

g = Graph("tensor", "main", inputs=(x, w), outputs=(y,))
for node in g.nodes(): ...          # inputs first, arguments before users
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from weft.core.node import Node, postorder, rebuild


@dataclass(frozen=True)
class Graph:
    """Inputs and outputs are nodes; `names` and `origin` (torch lines) never affect meaning."""

    level: str
    name: str
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    names: dict[Node, str] = field(default_factory=dict, compare=False)
    origin: dict[Node, str] = field(default_factory=dict, compare=False)

    def nodes(self) -> Iterator[Node]:
        return postorder(*self.inputs, *self.outputs)

    def rewrite(self, change: Callable[[Node], Node | None]) -> Graph:
        """Rewrite every node bottom-up; names and origins follow the nodes."""
        memo: dict[Node, Node] = {}
        outputs = rebuild(self.outputs, change, memo)
        names = {memo.get(n, n): name for n, name in self.names.items()} | self.names
        made = {memo[n]: self.origin[n] for n in reversed(memo) if n in self.origin}
        return Graph(self.level, self.name, self.inputs, outputs, names, made | self.origin)

    def users(self) -> dict[Node, list[Node]]:
        """Who reads each node."""
        users: dict[Node, list[Node]] = {n: [] for n in self.nodes()}
        for n in self.nodes():
            for a in dict.fromkeys(n.args):
                users[a].append(n)
        return users
