"""Lays out the buffers of a launch spec: their lifetimes, and their offsets in the arena.

layout = lay_out(spec)
layout.plan.total                # bytes of the arena
layout.segments                  # runs of consecutive native calls, each one C function
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from weft.runtime.collectives import moving_until
from weft.runtime.extern import torch_dtype
from weft.runtime.plan import Plan, Slot, align, plan
from weft.runtime.sizes import at_sizes, groups_of
from weft.runtime.spec import Buffer, Call, Extern, ProgramSpec, names_in


@dataclass(frozen=True)
class Segment:
    """Steps `first` to `stop`, excluded, of one kind: native calls (once or not), or one extern."""

    first: int
    stop: int
    native: bool
    once: bool = False


@dataclass(frozen=True)
class Layout:
    """All that code generation asks about a spec's buffers.

    lives     name -> the first and last step that touch it, or wait for a collective that does
    bound     buffers whose memory is the result of the extern that makes them
    addressed buffers that native calls take the address of
    """

    spec: ProgramSpec
    buffers: dict[str, Buffer]
    index: dict[str, int]
    lives: dict[str, tuple[int, int]]
    bound: frozenset[str]
    addressed: frozenset[str]
    segments: tuple[Segment, ...]
    plan: Plan  # of the sizes that are known, or else expected
    groups: tuple[tuple[str, ...], ...] = ()  # temporaries that share a place, where sizes vary

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Of the temporaries that kernels take: their numbers, and offsets in the arena."""
        offsets = self.plan.offsets.items()
        return [(self.index[name], start) for name, start in offsets if name in self.addressed]

    @cached_property
    def ends(self) -> dict[int, list[str]]:
        """By step: the temporaries that nothing touches after it, in this or in a collective."""
        found = defaultdict[int, list[str]](list)
        for name, (_, last) in self.lives.items():
            if self.buffers[name].kind == "temp":
                found[last].append(name)
        return found

    def in_arena(self, name: str) -> bool:
        """Whether a buffer's memory is part of the arena."""
        return name in self.plan.offsets

    def arena_view(self, arena: torch.Tensor, name: str) -> torch.Tensor:
        """A temporary as a torch tensor, for externs."""
        start = self.plan.offsets[name]
        b, dtype = self.buffers[name], torch_dtype(self.buffers[name].dtype)
        with torch.inference_mode(False), torch.no_grad():
            memory = arena[start : start + b.span * dtype.itemsize].view(dtype)
            return memory.as_strided(b.shape, b.strides, memory.storage_offset())


def lay_out(spec: ProgramSpec) -> Layout:
    """Find lifetimes, plan the arena and cut the steps into segments."""
    buffers = {b.name: b for b in spec.buffers}
    lives: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(spec.steps):
        for name in names_in(step):
            lives[name] = (lives.get(name, (number, number))[0], number)
    for number, last in moving_until(spec.steps).items():
        for name in names_in(spec.steps[number]):
            lives[name] = (lives[name][0], max(lives[name][1], last))
    bound = bound_buffers(spec, buffers, lives)
    expected = {b.name: b for b in at_sizes(spec, dict(spec.sizes)).buffers}
    slots = [
        Slot(name, expected[name].span * item_bytes(buffers[name]), *life)
        for name, life in lives.items()
        if buffers[name].kind == "temp" and name not in bound
    ]
    groups = groups_of(slots) if spec.sizes else []
    calls = (step for step in spec.steps if isinstance(step, Call))
    return Layout(
        spec=spec,
        buffers=buffers,
        index={b.name: i for i, b in enumerate(spec.buffers)},
        lives=lives,
        bound=bound,
        addressed=frozenset(name for call in calls for name in call.args),
        segments=cut_segments(spec),
        plan=plan(slots),
        groups=tuple(tuple(s.name for s in group) for group in groups),
    )


def resized(layout: Layout, sizes: Mapping[str, int]) -> Layout:
    """The layout for one value of each size: temporaries lie as `weft_arena` of a CPU puts them."""
    spec = at_sizes(layout.spec, sizes)
    buffers = {b.name: b for b in spec.buffers}
    offsets, start = dict[str, int](), 0
    for group in layout.groups:
        offsets |= dict.fromkeys(group, start)
        start += align(max(buffers[name].span * item_bytes(buffers[name]) for name in group))
    return replace(layout, spec=spec, buffers=buffers, plan=Plan(offsets, start))


def bound_buffers(
    spec: ProgramSpec, buffers: dict[str, Buffer], lives: dict[str, tuple[int, int]]
) -> frozenset[str]:
    """Temps and outputs first touched as the result of an extern: torch has allocated them."""
    bound: set[str] = set()
    for number, step in enumerate(spec.steps):
        if isinstance(step, Extern):
            for name in step.outputs:
                if name is None or buffers[name].kind not in ("temp", "output"):
                    continue
                if lives[name][0] == number and name not in step.reads:
                    bound.add(name)
    return frozenset(bound)


def cut_segments(spec: ProgramSpec) -> tuple[Segment, ...]:
    """Consecutive native calls of a kind form one segment; an extern is one by itself."""
    segments: list[Segment] = []
    for number, step in enumerate(spec.steps):
        once = isinstance(step, Call) and step.once is not None
        new = Segment(number, number + 1, isinstance(step, Call), once)
        last = segments[-1] if segments else None
        if last is not None and new.native and (last.native, last.once) == (True, once):
            segments[-1] = replace(last, stop=number + 1)
        else:
            segments.append(new)
    return tuple(segments)


def item_bytes(buffer: Buffer) -> int:
    """Bytes of one element."""
    return torch_dtype(buffer.dtype).itemsize
