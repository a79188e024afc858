"""What every level's verifier shares: it names the node and the source line of what is wrong.

check = Checker(graph)
check.that(condition, node, "view reads past axis 0")      # VerifyError: v3: view reads past axis 0
check_ops(check, TENSOR_OPS)
check_types(check)
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.errors import VerifyError
from weft.core.graph import Graph
from weft.core.node import Node, Op


@dataclass(frozen=True)
class Checker:
    """Raises VerifyError with the node's name, the sentence, and the torch source line."""

    graph: Graph

    def name(self, node: Node) -> str:
        return self.graph.names.get(node, f"an unnamed {node.op.name}")

    def fail(self, node: Node, sentence: str) -> VerifyError:
        return VerifyError(f"{self.name(node)}: {sentence}", self.graph.origin.get(node))

    def that(self, condition: bool, node: Node, sentence: str) -> None:
        if not condition:
            raise self.fail(node, sentence)


def check_ops(check: Checker, ops: tuple[type[Op], ...]) -> None:
    """Only the level's own ops."""
    for node in check.graph.nodes():
        sentence = f"{node.op.name} is not an op of the {check.graph.level} level"
        check.that(isinstance(node.op, ops), node, sentence)


def check_types(check: Checker) -> None:
    for node in check.graph.nodes():
        check_type(check, node)


def check_type(check: Checker, node: Node) -> None:
    """The node carries the type that its op infers from its arguments' types."""
    try:
        inferred = node.op.infer(*(a.type for a in node.args))
    except VerifyError as e:
        raise check.fail(node, e.message) from e
    except TypeError as e:
        raise check.fail(node, f"{node.op.name} does not take {len(node.args)} arguments") from e
    check.that(inferred == node.type, node, f"is {node.type}, but its op gives {inferred}")
