"""The one immutable, interned node that every level's terms are made of: `is` is equality.

x = make(Input("x", TensorType(f32, (4,))))
y = make(Map(add), x, x)
assert y is make(Map(add), x, x) and str(y.type) == "f32[4]"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar, TypeVar
from weakref import WeakValueDictionary

from typing_extensions import dataclass_transform

from weft.core.errors import VerifyError
from weft.core.types import Type


class Op:
    """What a node does, with its attributes; a subclass is a frozen dataclass made by `@op(name)`.

    A subclass names its operands: `def infer(self, x: TensorType, y: TensorType)`. The keywords
    here, which nobody passes, tell the type checker that any operands may stand there.
    """

    name: ClassVar[str]

    def infer(self, *types: Any, **_: Any) -> Type:
        """The result's type from the arguments' types; VerifyError when they do not fit."""
        raise NotImplementedError(self.name)

    def evaluate(self, *values: Any, **_: Any) -> Any:
        """The result on NumPy arrays: the op's meaning, used by the reference interpreters."""
        raise NotImplementedError(self.name)


OPS: dict[str, type[Op]] = {}
C = TypeVar("C", bound=type[Op])


@dataclass_transform(frozen_default=True)
def op(name: str) -> Callable[[C], C]:
    """Declare an op: register its class under `name` and make it a frozen dataclass."""

    def declare(cls: C) -> C:
        cls.name = name
        OPS[name] = cls
        return dataclass(frozen=True)(cls)  # type: ignore[return-value]

    return declare


def declared_in(cls: type, folders: tuple[str, ...]) -> bool:
    """Whether an op or statement is of one of those folders of weft, or from outside (a test's)."""
    package, _, module = cls.__module__.partition(".")
    return package != "weft" or module.split(".")[0] in folders


def require(condition: bool, message: str, where: str | None = None) -> None:
    """Raise VerifyError with that sentence unless the condition holds."""
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


def make(op: Op, *args: Node) -> Node:
    """The node of that op and those arguments; the same object whenever they are the same."""
    key = (op, args)
    found = _interned.get(key)
    if found is None:
        made = Node(op, args, op.infer(*(a.type for a in args)))
        with _lock:  # two threads may compile at once, and `is` must stay equality
            found = _interned.setdefault(key, made)
    return found


K = TypeVar("K")
V = TypeVar("V")


def bottom_up(
    root: K,
    memo: dict[K, V],
    compute: Callable[[K], V],
    below: Callable[[Any], Iterable[Any]] = lambda n: n.args,
) -> V:
    """compute(root), after every node below it that `memo` lacks: terms may be deeper than calls.

    `compute` finds the values of the nodes below in `memo`. Any graph without cycles will do.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = () if node in memo else [a for a in below(node) if a not in memo]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        if node not in memo:
            memo[node] = compute(node)
    return memo[root]


def postorder(*roots: Node) -> Iterator[Node]:
    """Every node reachable from the roots once, arguments before users."""
    seen: dict[Node, None] = {}
    for root in roots:
        bottom_up(root, seen, lambda _: None)
    return iter(seen)


def rebuild(
    roots: tuple[Node, ...],
    change: Callable[[Node], Node | None],
    memo: dict[Node, Node] | None = None,
) -> tuple[Node, ...]:
    """Rewrite bottom-up: `change` gets each node with its new arguments; None keeps it."""
    done: dict[Node, Node] = {} if memo is None else memo

    def compute(node: Node) -> Node:
        args = tuple([done[a] for a in node.args])
        current = node if args == node.args else make(node.op, *args)
        return change(current) or current

    return tuple([bottom_up(root, done, compute) for root in roots])


def substitute(roots: tuple[Node, ...], values: dict[Node, Node]) -> tuple[Node, ...]:
    """Replace nodes by others wherever they stand in the roots."""
    return rebuild(roots, lambda n: None, dict(values))
