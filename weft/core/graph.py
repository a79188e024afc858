"""A graph of whole tensors, as programs of the torch and tensor levels are.

g = Graph("tensor", "main", inputs=(x, w), outputs=(y,))
for node in g.nodes(): ...          # inputs first, arguments before users
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from weft.core.node import Change, Node, postorder, rebuild


@dataclass(frozen=True)
class Graph:
    """Inputs and outputs are nodes.

    `names` holds names of nodes, `origin` their torch source lines. Neither affects the meaning.
    """

    level: str
    name: str
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    names: dict[Node, str] = field(default_factory=dict, compare=False)
    origin: dict[Node, str] = field(default_factory=dict, compare=False)

    def nodes(self) -> Iterator[Node]:
        return postorder(*self.inputs, *self.outputs)

    def rewrite(self, change: Change) -> Graph:
        """Rewrites every node as `rebuild` does; new nodes take over names and origins."""
        memo: dict[Node, Node] = {}
        outputs = rebuild(self.outputs, change, memo)
        names = {memo.get(n, n): name for n, name in self.names.items()} | self.names
        made = {memo[n]: self.origin[n] for n in reversed(memo) if n in self.origin}
        return Graph(self.level, self.name, self.inputs, outputs, names, made | self.origin)

    def users(self) -> dict[Node, list[Node]]:
        """For each node the nodes that read it, each once."""
        users: dict[Node, list[Node]] = {n: [] for n in self.nodes()}
        for n in self.nodes():
            for a in dict.fromkeys(n.args):
                users[a].append(n)
        return users
