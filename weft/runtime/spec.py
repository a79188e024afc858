"""The launch spec: which buffers a program has, the steps it takes over them, what it returns.

x = Buffer("x", "f32", (16,), (1,), "input", 0)
y = Buffer("y", "f32", (16,), (1,), "output")
ProgramSpec((x, y), (Call("relu", ("x", "y")),), ("y",))     # to_json() and from_json()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Literal, cast

from weft.core.errors import VerifyError

Kind = Literal["input", "output", "temp", "kept", "sizes"]
Extent = Any  # an int, or text: an expression over the program's sizes
Json = dict[str, Any]


@dataclass(frozen=True)
class Buffer:
    """Memory that steps name: element type, shape, strides in elements, and where it comes from.

    input    tensor `index` of the call's arguments; writing to it is writing to the argument
    output   allocated afresh by every call
    temp     in the arena, alive from the first step that names it to the last
    kept     the result of a `once` step: calls, and other programs, share its memory
    sizes    an i64 for each size that the call decides
    """

    name: str
    dtype: str
    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    kind: Kind
    index: int = 0

    @property
    def span(self) -> Extent:
        """Elements from the first to one past the last."""
        if 0 in self.shape:
            return 0
        steps = [*zip(self.shape, self.strides, strict=True)]
        if any(isinstance(n, str) for n in (*self.shape, *self.strides)):
            return " + ".join(["1", *(f"(({n}) - 1) * ({s})" for n, s in steps)])
        return 1 + sum((n - 1) * s for n, s in steps)


@dataclass(frozen=True)
class Call:
    """A native kernel: the C function `symbol` called with the addresses of `args`, in order.

    `checks` names its origin for the error of a fault, if it has checked functions. A step with
    `once`, such as packing a weight, depends on constants alone: it runs again only when one of
    the inputs of such steps has changed. `once` is a digest of its text: steps with equal digests
    and equal inputs share their result, also across programs. `starts` are bytes from the address
    of each buffer to what the kernel takes for it; () is none. With `rows` the kernel is called so
    many times, with as many of the `args` each: in order, or with a `grain` by threads, each of
    which takes so many rows at least. One that is `shared` has loops that threads share.
    """

    symbol: str
    args: tuple[str, ...]
    checks: str | None = None
    once: str | None = None
    starts: tuple[int, ...] = ()
    rows: int = 1
    grain: int = 0
    shared: bool = False

    @property
    def arity(self) -> int:
        """Operands of one row."""
        return len(self.args) // self.rows


@dataclass(frozen=True)
class Extern:
    """An ATen operator run by torch, for what weft does not generate.

    `args` and `kwargs` are JSON trees as in library/calls.py; {"tensor": name} is a buffer.
    `outputs` names a buffer for each result, None for a result nobody reads.
    """

    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: tuple[str | None, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The buffers its arguments name; an operator that mutates an argument writes it too."""
        return tuple(buffers_in([*self.args, *self.kwargs.values()]))


Step = Call | Extern


@dataclass(frozen=True)
class ProgramSpec:
    """A whole program: all buffers, the steps in order, and the buffers that a call returns.

    `sizes` are the names of what calls decide, in order, each with the number that plans count on.
    A call gets their values after its tensors. `numbers` are the sizes of rows, equal in all calls.
    """

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...] = ()
    numbers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        verify(self)

    def to_json(self) -> Json:
        """A tree of plain dicts and lists that json.dumps accepts."""
        return {
            "buffers": [astuple(b) for b in self.buffers],
            "steps": [(type(s).__name__, *astuple(s)) for s in self.steps],
            "outputs": list(self.outputs),
            "sizes": [list(size) for size in self.sizes],
            "numbers": list(self.numbers),
        }

    @staticmethod
    def from_json(tree: Json) -> ProgramSpec:
        """The spec that `to_json` wrote."""
        kinds = {kind.__name__: kind for kind in (Call, Extern)}
        return ProgramSpec(
            tuple(Buffer(*with_tuples(row)) for row in tree["buffers"]),
            tuple(kinds[kind](*with_tuples(row)) for kind, *row in tree["steps"]),
            tuple(tree["outputs"]),
            tuple((label, hint) for label, hint in tree["sizes"]),
            tuple(tree["numbers"]),
        )


def with_tuples(row: Iterable[Any]) -> Iterator[Any]:
    """The fields of a dataclass, whose tuples are lists in JSON."""
    return (tuple(cast(list[Any], v)) if isinstance(v, list) else v for v in row)


def buffers_in(tree: Any) -> Iterator[str]:
    """The buffer names in an argument tree, in order."""
    if isinstance(tree, dict):
        name = cast(Json, tree).get("tensor")
        if name is not None:
            yield name
    elif isinstance(tree, list | tuple):
        for item in cast(list[Any], tree):
            yield from buffers_in(item)


def names_in(step: Step) -> tuple[str, ...]:
    """Every buffer a step touches."""
    if isinstance(step, Call):
        return step.args
    return step.reads + tuple(name for name in step.outputs if name is not None)


def verify(spec: ProgramSpec) -> None:
    """Check what the rest of the runtime relies on.

    1. buffer names are unique, and shape and strides have the same rank
    2. steps and outputs name buffers that exist, and an output is not in the arena
    3. the rows of a call have equally many operands
    """
    known: dict[str, Buffer] = {}
    for b in spec.buffers:
        require(b.name not in known, f"two buffers are named {b.name}")
        require(len(b.shape) == len(b.strides), f"{b.name}: shape and strides differ in rank")
        known[b.name] = b
    for step in spec.steps:
        label = step.symbol if isinstance(step, Call) else step.target
        whole = isinstance(step, Extern) or len(step.args) == step.rows * step.arity
        require(whole, f"step {label}: its rows differ in how many operands they have")
        for name in names_in(step):
            require(name in known, f"step {label} names the unknown buffer {name}")
    for name in spec.outputs:
        require(name in known, f"output {name} is not a buffer")
        temp = known[name].kind in ("temp", "kept")
        require(not temp, f"output {name} is a temp, which the next call overwrites")


def require(condition: bool, message: str) -> None:
    if not condition:
        raise VerifyError(f"launch spec: {message}")
