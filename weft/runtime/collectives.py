"""Waits for collectives in a launch spec: their results are what they wait for, and stay in place.

spec = unified(spec)        # a wait makes no tensor: steps behind it read what the collective made
moving_until(spec.steps)    # {3: 7}: what step 3 touches is not free before step 7
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from weft.library.collectives import WAIT, starts
from weft.runtime.spec import Buffer, Call, Extern, ProgramSpec, Step, names_in


def unified(spec: ProgramSpec) -> ProgramSpec:
    """The spec in which a wait for a collective's result gives that very buffer."""
    known = {b.name: b for b in spec.buffers}
    same: dict[str, str] = {}
    begun: set[str] = set()
    steps: list[Step] = []
    for step in (_renamed(s, same) for s in spec.steps):
        if isinstance(step, Extern) and step.target == WAIT and step.outputs not in ((), (None,)):
            (given,), made = step.reads, cast(str, step.outputs[0])
            if given in begun and _alike(known[given], known[made]):
                same[made] = given
                step = replace(step, outputs=(None,))
                if known[made].kind == "output":
                    known[given] = replace(known[given], kind="output")
        if isinstance(step, Extern) and starts(step.target):
            begun |= {name for name in step.outputs if name is not None}
        steps.append(step)
    buffers = tuple(known[b.name] for b in spec.buffers if b.name not in same)
    outputs = tuple(same.get(name, name) for name in spec.outputs)
    return replace(spec, buffers=buffers, steps=tuple(steps), outputs=outputs) if same else spec


def _alike(a: Buffer, b: Buffer) -> bool:
    return (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)


def _renamed(step: Step, same: dict[str, str]) -> Step:
    """The step, which names what waits were given in place of what they gave."""
    if not same.keys() & {*names_in(step)}:
        return step
    if isinstance(step, Call):
        return replace(step, args=tuple(same.get(name, name) for name in step.args))
    args, kwargs = _tree(step.args, same), _tree(dict(step.kwargs), same)
    return replace(step, args=tuple(args), kwargs=kwargs)


def _tree(value: Any, same: dict[str, str]) -> Any:
    if isinstance(value, list | tuple):
        return [_tree(v, same) for v in cast(Sequence[Any], value)]
    if not isinstance(value, dict):
        return value
    found = cast(dict[str, Any], value)
    if "tensor" in found:
        return {"tensor": same.get(found["tensor"], found["tensor"])}
    return {key: _tree(v, same) for key, v in found.items()}


def moving_until(steps: Sequence[Step]) -> dict[int, int]:
    """Of each step that starts a collective, the last wait for one of its results."""
    found: dict[int, int] = {}
    made: dict[str, int] = {}
    for i, step in enumerate(steps):
        if isinstance(step, Extern) and starts(step.target):
            made |= {name: i for name in step.outputs if name is not None}
            found[i] = len(steps) - 1
    waits = [(i, s) for i, s in enumerate(steps) if isinstance(s, Extern) and s.target == WAIT]
    for i, step in waits:
        for name in step.reads:
            if name in made:
                found[made[name]] = i
    return found
