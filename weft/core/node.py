"""The immutable, interned node that terms of every level consist of, and graphs of such nodes.

x = make(Input("x", TensorType(f32, (4,))))
y = make(Map(add), x, x)
assert y is make(Map(add), x, x) and str(y.type) == "f32[4]"    # `is` is equality
g = Graph("tensor", "main", inputs=(x,), outputs=(y,))
for node in g.nodes(): ...          # inputs first, arguments before users
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Lock
from typing import Any, ClassVar, Concatenate, TypeVar
from weakref import WeakValueDictionary

from typing_extensions import Self, dataclass_transform

from weft.core.errors import VerifyError
from weft.core.types import Type


class Op:
    """What a node computes, with its attributes. A subclass is a frozen dataclass, see `op`.

    A subclass names its arguments: `def infer(self, x: TensorType, y: TensorType)`. No caller
    passes `**_`: it makes the type checker accept subclasses with any number of arguments.
    """

    name: ClassVar[str]

    def infer(self, *types: Any, **_: Any) -> Type:
        """The result's type from the arguments' types; VerifyError if they do not fit."""
        raise NotImplementedError(self.name)

    def evaluate(self, *values: Any, **_: Any) -> Any:
        """The result for NumPy arrays. This defines the op: the interpreters compute with it."""
        raise NotImplementedError(self.name)


OPS: dict[str, type[Op]] = {}
C = TypeVar("C", bound=type[Op])


@dataclass_transform(frozen_default=True)
def op(name: str) -> Callable[[C], C]:
    """Declares an op: registers its class under `name` and makes it a frozen dataclass."""

    def declare(cls: C) -> C:
        cls.name = name
        OPS[name] = cls
        return dataclass(frozen=True)(cls)  # type: ignore[return-value]

    return declare


A = TypeVar("A", bound=Op)


def op_of(node: Node, kind: type[A]) -> A:
    """The op of a node that can be of this kind only."""
    assert isinstance(node.op, kind)
    return node.op


def declared_in(cls: type, folders: tuple[str, ...]) -> bool:
    """Whether a class is declared in one of these folders of weft, or outside weft (in a test)."""
    package, _, module = cls.__module__.partition(".")
    return package != "weft" or module.split(".")[0] in folders


def require(condition: bool, message: str, where: str | None = None) -> None:
    """Raises VerifyError with this message unless the condition holds."""
    if not condition:
        raise VerifyError(message, where)


class Node:
    """One interned term: an op applied to other nodes. Its type is inferred, never passed."""

    __slots__ = ("__weakref__", "args", "op", "type")
    op: Op
    args: tuple[Node, ...]
    type: Any  # TensorType at the torch and tensor levels, ScalarType below

    def __init__(self, op: Op, args: tuple[Node, ...], type_: Type) -> None:
        self.op, self.args, self.type = op, args, type_

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.args))
        return f"{self.op}({inner})" if inner else str(self.op)

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: Any) -> Node:
        return self


_lock = Lock()
_interned: WeakValueDictionary[tuple[Op, tuple[Node, ...]], Node] = WeakValueDictionary()
_live: Callable[..., Any] = _interned.data.get  # pyright: ignore[reportAttributeAccessIssue]


def make(op: Op, *args: Node) -> Node:
    """The node of an op and its arguments: one object for equal ones.

    VerifyError if the types of the arguments do not fit the op.
    """
    key = (op, args)
    known = _live(key)  # the reference: `get` of the dictionary is Python, and takes as long again
    found = None if known is None else known()
    if found is None:
        made = Node(op, args, op.infer(*(a.type for a in args)))
        with _lock:  # two threads may compile at once, and `is` must stay equality
            found = _interned.setdefault(key, made)
    return found


K = TypeVar("K")
V = TypeVar("V")
Below = Callable[[Any], Iterable[Any]]  # the successors of a node


def bottom_up(
    root: K, memo: dict[K, V], compute: Callable[[K], V], below: Below = attrgetter("args")
) -> V:
    """Computes a value for the root, after one for every node below it that `memo` lacks.

    `compute` reads the values of the nodes below from `memo`, and `below` lists a node's
    successors, in any graph without cycles. There is no recursion, because terms may be deeper
    than Python's stack.
    """
    if root in memo:
        return memo[root]
    stack = [root]
    while stack:
        node = stack.pop()
        if node in memo:
            continue
        args = tuple(below(node))
        for a in args:  # a loop: a comprehension is a call
            if a not in memo:
                stack.append(node)
                stack.extend(args[::-1])
                break
        else:
            memo[node] = compute(node)
    return memo[root]


def postorder(*roots: Node) -> Iterator[Node]:
    """Every node reachable from the roots once, arguments before users.

    As `bottom_up` goes, but in half the time: most of what a compiler does with terms is this.
    """
    seen: dict[Node, None] = {}
    stack = [*reversed(roots)]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        for a in node.args:
            if a not in seen:
                stack.append(node)
                stack.extend(node.args[::-1])
                break
        else:
            seen[node] = None
    return iter(seen)


Nodes = tuple[Node, ...]
Change = Callable[[Node], Node | None]  # what becomes of a node; None keeps it


def rebuild(roots: Nodes, change: Change, memo: dict[Node, Node] | None = None) -> Nodes:
    """Rewrites bottom-up: `change` takes each node on its new arguments; None keeps that node."""
    done: dict[Node, Node] = {} if memo is None else memo
    stack = [*reversed(roots)]
    while stack:  # as `bottom_up` goes, without a call for each node
        node = stack.pop()
        if node in done:
            continue
        for a in node.args:
            if a not in done:
                stack.append(node)
                stack.extend(node.args[::-1])
                break
        else:
            args = tuple([done[a] for a in node.args])
            current = node if args == node.args else make(node.op, *args)
            done[node] = change(current) or current
    return tuple([done[root] for root in roots])


def substitute(roots: Nodes, values: dict[Node, Node]) -> Nodes:
    """Replaces each node of the roots that `values` maps to another one."""
    return rebuild(roots, lambda n: None, dict(values))


@dataclass(frozen=True, repr=False)
class Graph:
    """A program of whole tensors, as at the torch and tensor levels; inputs and outputs are nodes.

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

    def __repr__(self) -> str:
        """Equal for equal graphs: each node is written once."""
        return f"{self.level} {self.name} {self.rows()}"

    def rows(self) -> list[str]:
        """Every node with its name and the numbers of its arguments, then those of the outputs."""
        number: dict[Node, int] = {}
        lines: list[str] = []
        for node in self.nodes():
            number[node] = len(number)
            lines.append(f"{node.op!r} {[number[a] for a in node.args]} {self.names.get(node)}")
        return [*lines, repr([number[o] for o in self.outputs])]

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


# --- Python's operators on terms ------------------------------------------------------------------

T = TypeVar("T", bound="Operators")


def _apply(name: str) -> Callable[Concatenate[T, ...], T]:
    return lambda self, *others: self.apply(name, self, *others)


def _reflected(name: str) -> Callable[[T, Any], T]:
    return lambda self, other: self.apply(name, other, self)


class Operators:
    """A term whose operators `apply` a pointwise function by its name; `==` is not one of them."""

    def apply(self, name: str, *args: Any) -> Self:
        raise NotImplementedError

    __add__ = __radd__ = _apply("add")
    __sub__, __rsub__ = _apply("subtract"), _reflected("subtract")
    __mul__ = __rmul__ = _apply("multiply")
    __truediv__, __rtruediv__ = _apply("divide"), _reflected("divide")
    __floordiv__, __mod__ = _apply("floordiv"), _apply("floormod")
    __and__, __or__, __xor__ = _apply("and"), _apply("or"), _apply("xor")
    __lt__, __le__, __gt__, __ge__ = _apply("lt"), _apply("le"), _apply("gt"), _apply("ge")
    __invert__, __neg__, __abs__ = _apply("not"), _apply("negate"), _apply("absolute")
