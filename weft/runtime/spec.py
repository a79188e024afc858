"""The launch spec: which buffers a program has, the steps it takes over them, what it returns.

x = Buffer("x", "f32", (16,), (1,), "input", 0)
y = Buffer("y", "f32", (16,), (1,), "output")
ProgramSpec((x, y), (Call("relu", ("x", "y")),), (Output("y"),))     # to_json() and from_json()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from weft.core.errors import VerifyError

Kind = Literal["input", "const", "output", "temp", "kept"]
Json = dict[str, Any]


@dataclass(frozen=True)
class Buffer:
    """Memory that steps name: element type, shape, strides in elements, and where it comes from.

    input    tensor `index` of the call's arguments; writing to it is writing to the argument
    const    tensor `index` of the constants bound when the program was loaded
    output   allocated afresh by every call
    temp     in the arena, alive from the first step that names it to the last
    kept     what a `once` step makes: memory that calls, and other programs, share

    With `alias` set the buffer is a part of that other buffer, `offset` elements in, and has no
    memory of its own: use it for views and for results written over a dead buffer.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: Kind
    index: int = 0
    alias: str | None = None
    offset: int = 0

    @property
    def span(self) -> int:
        """Elements from the first to one past the last."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class Call:
    """A native kernel: the C function `symbol` called with the addresses of `args`, in order.

    `checks` says where it stems from if it has checked functions, for the error of a fault.
    A step with `once` runs again only when one of the inputs that such steps read has changed;
    steps of equal `once` make the same of the same inputs.
    """

    symbol: str
    args: tuple[str, ...]
    checks: str | None = None
    once: str | None = None


@dataclass(frozen=True)
class Extern:
    """An ATen operator run by torch, for what weft does not generate.

    `args` and `kwargs` are JSON trees as in core/calls.py, in which {"tensor": name} is a buffer.
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
class Output:
    """One returned tensor: a buffer itself, or with `shape` and `strides` a view of it.

    `offset` counts elements from the buffer's first element. Views of one buffer share its memory,
    and a view of an input is a view of the caller's tensor, as in eager.
    """

    buffer: str
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    offset: int = 0


Result = Output | None | bool | int | float


@dataclass(frozen=True)
class ProgramSpec:
    """A whole program: all buffers, the steps in order, and what a call returns."""

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Result, ...]

    def __post_init__(self) -> None:
        verify(self)

    def to_json(self) -> Json:
        """A tree of plain dicts and lists that json.dumps accepts."""
        return {
            "buffers": [buffer_to_json(b) for b in self.buffers],
            "steps": [step_to_json(s) for s in self.steps],
            "outputs": [result_to_json(r) for r in self.outputs],
        }

    @staticmethod
    def from_json(tree: Json) -> ProgramSpec:
        """The spec that `to_json` wrote."""
        return ProgramSpec(
            tuple(buffer_from_json(b) for b in tree["buffers"]),
            tuple(step_from_json(s) for s in tree["steps"]),
            tuple(result_from_json(r) for r in tree["outputs"]),
        )


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
    2. an alias names an earlier buffer of the same kind and dtype
    3. steps and outputs name buffers that exist, and an output is not in the arena
    """
    known: dict[str, Buffer] = {}
    for b in spec.buffers:
        require(b.name not in known, f"two buffers are named {b.name}")
        require(len(b.shape) == len(b.strides), f"{b.name}: shape and strides differ in rank")
        if b.alias is not None:
            of = known.get(b.alias)
            require(of is not None, f"{b.name} aliases {b.alias}, which no earlier buffer is named")
            assert of is not None
            same = (of.kind, of.dtype) == (b.kind, b.dtype)
            require(same, f"{b.name} aliases {b.alias} of another kind or dtype")
        known[b.name] = b
    for step in spec.steps:
        label = step.symbol if isinstance(step, Call) else step.target
        for name in names_in(step):
            require(name in known, f"step {label} names the unknown buffer {name}")
    for result in spec.outputs:
        if isinstance(result, Output):
            require(result.buffer in known, f"output {result.buffer} is not a buffer")
            temp = known[result.buffer].kind in ("temp", "kept")
            require(not temp, f"output {result.buffer} is a temp, which the next call overwrites")


def require(condition: bool, message: str) -> None:
    if not condition:
        raise VerifyError(f"launch spec: {message}")


def buffer_to_json(b: Buffer) -> list[Any]:
    return [b.name, b.dtype, list(b.shape), list(b.strides), b.kind, b.index, b.alias, b.offset]


def buffer_from_json(row: list[Any]) -> Buffer:
    name, dtype, shape, strides, kind, index, alias, offset = row
    return Buffer(name, dtype, tuple(shape), tuple(strides), kind, index, alias, offset)


def step_to_json(step: Step) -> Json:
    if isinstance(step, Call):
        args = list(step.args)
        return {"call": step.symbol, "args": args, "checks": step.checks, "once": step.once}
    return {
        "extern": step.target,
        "args": list(step.args),
        "kwargs": dict(step.kwargs),
        "outputs": list(step.outputs),
    }


def step_from_json(tree: Json) -> Step:
    if "call" in tree:
        return Call(tree["call"], tuple(tree["args"]), tree["checks"], tree["once"])
    return Extern(tree["extern"], tuple(tree["args"]), tree["kwargs"], tuple(tree["outputs"]))


def result_to_json(result: Result) -> Any:
    if not isinstance(result, Output):
        return result
    if result.shape is None or result.strides is None:
        return {"buffer": result.buffer}
    view = [list(result.shape), list(result.strides), result.offset]
    return {"buffer": result.buffer, "view": view}


def result_from_json(tree: Any) -> Result:
    if not isinstance(tree, dict):
        return tree
    row = cast(Json, tree)
    if "view" not in row:
        return Output(row["buffer"])
    shape, strides, offset = row["view"]
    return Output(row["buffer"], tuple(shape), tuple(strides), offset)
