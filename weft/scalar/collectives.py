"""Collectives among the steps of a program, and the waits for their results.

steps = awaited(steps)      # with the waits that are missing
verify(steps)               # VerifyError where a step touches what a collective may still move
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from weft.core.arguments import Arguments
from weft.core.node import require
from weft.library.collectives import COALESCED, WAIT, starts
from weft.scalar.nest import Block, Buffer, Call, Step
from weft.scalar.repeat import Repeat, Rows
from weft.scalar.sizes import hint


def is_wait(step: Step) -> bool:
    return isinstance(step, Call) and step.target == WAIT


def is_start(step: Step) -> bool:
    """Whether the step is a collective that is done only when a wait returns."""
    return isinstance(step, Call) and starts(step.target)


def whole_form(step: Step) -> str | None:
    """The collective of several tensors that does what this step does with one, if there is one."""
    return COALESCED.get(step.target) if isinstance(step, Call) else None


def read_by(step: Step) -> list[Buffer]:
    """What a step reads; not what a library call only has to come after."""
    if not isinstance(step, Call):
        return [*step.inputs]
    args, keywords = step.arguments.bind(step.inputs, lambda *_: None)
    return [b for b in _leaves([args, keywords]) if isinstance(b, Buffer)]


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict | list):
        found = cast(dict[str, Any] | list[Any], tree)
        for item in found.values() if isinstance(found, dict) else found:
            yield from _leaves(item)
    else:
        yield tree


def awaited(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, with a wait for each result of a collective before it is read, or at the end.

    At the latest there: until then the collective may read memory that the next call writes.
    """
    pending: dict[str, Buffer] = {}
    found: list[Step] = []
    for step in steps:
        for b in read_by(step):
            if pending.pop(b.name, None) is not None and not is_wait(step):
                found.append(_wait(b))
        found.append(step)
        pending |= {b.name: b for b in (step.outputs if is_start(step) else ())}
    return (*found, *map(_wait, pending.values()))


def _wait(b: Buffer) -> Call:
    why = "nothing else waits for a collective"
    return Call(WAIT, Arguments.of([{"tensor": 0}]), (b,), (), why)


def verify(steps: Sequence[Step]) -> None:
    """VerifyError unless there is a wait for each collective before what it moves is touched.

    Nothing but a wait reads a result before that, and nothing writes what it reads.
    """
    moving: dict[str, tuple[str, ...]] = {}  # by result: what its collective reads
    for step in steps:
        name = f"call of {step.target}" if isinstance(step, Call) else f"kernel {step.name}"
        for b in read_by(step):
            told = f"{name} reads {b.name} before a wait for the collective that makes it"
            require(b.name not in moving or is_wait(step), told)
            moving.pop(b.name, None)
        for b in step.outputs:
            held = any(b.name in (made, *read) for made, read in moving.items())
            told = f"{name} writes {b.name} before a wait for the collective that moves it"
            require(not held, told)
        if is_start(step):
            read = tuple(b.name for b in read_by(step))
            moving |= {b.name: read for b in step.outputs}
    left = ", ".join(moving)
    require(not moving, f"nothing waits for the collective that makes {left}: add a wait_tensor")


def time_of(step: Step, price: Callable[[Block], float]) -> float:
    """Microseconds of kernels; of library calls nothing is known."""
    if isinstance(step, Call):
        return 0.0
    if isinstance(step, Rows):
        return len(step.rows) * price(step.kernel.body)
    if isinstance(step, Repeat):
        return step.count * sum(price(k.body) for k in step.steps)
    return price(step.body)


def bytes_of(buffers: Sequence[Buffer]) -> int:
    return sum(hint(b.type.bytes) for b in buffers)
