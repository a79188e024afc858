"""Expressions as text: sum_k(x0[i, k] * x1[k, j]).

shown(expression)       # the start of it, where it is long
"""

from weft.core.node import Node
from weft.scalar.ops import Axis
from weft.scalar.text.terms import show_term
from weft.search.elements import Element, Extent
from weft.search.writer import Expression, place
from weft.tensor.ops import Input
from weft.tensor.rules_view import axes_of

LETTERS, LONG = "ijklmnpqrstuvwyz", 240  # names of axes, most characters


class Text:
    """Writes one expression. What is shared is written again, but no more of it than is shown."""

    def __init__(self) -> None:
        self.letters: dict[Node, str] = {}
        self.known: dict[tuple[int, str], str] = {}

    def named(self, term: Node) -> str | None:
        """The letter of an axis, and the text of what only the search has in terms."""
        match term.op:
            case Axis(label=label):
                free = len(self.letters)
                return self.letters.setdefault(term, LETTERS[free] if free < 16 else label)
            case Element(tensor=tensor):
                return self.read(tensor, term.args)
            case Extent(axis=axis):
                return f"|{self.named(axis)}|"
            case _:
                return None

    def read(self, tensor: Node, index: tuple[Node, ...]) -> str:
        masked = not isinstance(tensor.op, Input) and bool(tensor.args)
        label = getattr((tensor.args[0] if masked else tensor).op, "label", "t")
        return f"{label}{chr(39) * masked}[{', '.join(map(self.term, index))}]"

    def term(self, term: Node) -> str:
        return show_term(term, self.named)

    def text(self, e: Expression, outer: str = "") -> str:
        if (id(e), outer) not in self.known:
            self.known[id(e), outer] = self.written(e, outer)[: LONG + 1]
        return self.known[id(e), outer]

    def written(self, e: Expression, outer: str) -> str:
        match e.kind:
            case "const":
                return str(e.data)
            case "extent":
                return f"|{self.named(e.data)}|"
            case "leaf":
                return self.read(*e.data)
            case "mask":
                return f"[{self.term(e.data[0])}]"
            case "sum" | "max" | "min":
                axes = "".join(self.named(a) or "" for a in sorted(e.data, key=place))
                return f"{e.kind}_{axes}({self.text(e.args[0])})"
            case "fn":
                return f"{e.data}({self.text(e.args[0])})"
            case "scan":
                a, upwards = e.data
                how = "up to" if upwards else "from"
                return f"(sum {how} {self.named(a)} of {self.text(e.args[0])})"
            case "at":
                a, index = e.data
                return f"{self.text(e.args[0])} at {self.named(a)} = {self.term(index)}"
            case _:
                parts = (self.text(a, e.kind) for a in e.args)
                whole = {"mul": " * ", "add": " + "}[e.kind].join(parts)
                return f"({whole})" if (outer, e.kind) == ("mul", "add") else whole


def shown(e: Expression) -> str:
    """An expression as text; the start of it if that is long."""
    text = Text()
    leaves = [f.data[1] for f in e.all() if f.kind == "leaf"]
    for a in sorted({a for index in leaves for a in axes_of(*index)}, key=place):
        text.named(a)
    whole = text.text(e)
    return whole if len(whole) <= LONG else f"{whole[:LONG]} ..."
