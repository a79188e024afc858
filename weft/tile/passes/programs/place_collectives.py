"""place_collectives: starts a collective right behind its producer, and waits before its reader.

before  call ...all_reduce...(x) -> r           after  call ...all_reduce...(x) -> r
        call ...wait_tensor...(r) -> w                 kernel h(z) -> h
        kernel h(z) -> h                               call ...wait_tensor...(r) -> w
        kernel y(w, h) -> y                            kernel y(w, h) -> y

A list schedule over prices: a collective goes as soon as it can, then what the next one needs, then
what waits for none that is on its way, in order of the program. Library calls never pass each
other, so all processes call collectives in one order, whatever each computes. Of collectives that
are on their way no more than IN_FLIGHT bytes of results are held at once, where others can wait.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from weft.scalar.collectives import (
    bytes_of,
    is_start,
    is_wait,
    read_by,
    time_of,
)
from weft.scalar.nest import Block, Program, Step
from weft.scalar.order import dependencies
from weft.targets.machine import Machine

IN_FLIGHT = 256 << 20  # bytes

Price = Callable[[Block], float]


def place_collectives(program: Program, target: Machine, price: Price) -> Program:
    """Move calls of collectives, waits and kernels so that kernels run while data is on its way."""
    if not any(map(is_start, program.steps)):
        return program
    return replace(program, steps=tuple(_Placing(program.steps, target, price).order()))


class _Placing:
    """The steps in their new order, as it grows, with the time at which each would start."""

    def __init__(self, steps: Sequence[Step], target: Machine, price: Price) -> None:
        self.steps, self.target, self.price = steps, target, price
        self.before, self.waits = self._without_waits(dependencies(steps))
        self.after: defaultdict[int, list[int]] = defaultdict(list)
        for i, near in enumerate(self.before):
            for j in near:
                self.after[j].append(i)
        self.leads = [len(steps)] * len(steps)  # the first collective that needs the step
        for i in reversed(range(len(steps))):
            near = [self.leads[j] for j in self.after[i]]
            self.leads[i] = i if is_start(steps[i]) else min(near, default=len(steps))
        self.now, self.network, self.flying = 0.0, 0.0, 0  # us, us, bytes
        self.done: dict[int, None] = {}
        self.arrival: dict[str, tuple[float, int]] = {}  # when a result is there, and its bytes

    def _without_waits(self, near: list[set[int]]) -> tuple[list[set[int]], list[list[int]]]:
        """Which other steps come before each one, and the waits that do, which go just before."""
        before: list[set[int]] = []
        waits: list[list[int]] = []
        for direct in near:
            own = {j for j in direct if is_wait(self.steps[j])}
            soft = sorted(own.union(*(waits[j] for j in own)))
            before.append((direct - own).union(*(before[j] for j in own)))
            waits.append(soft)
        return before, waits

    def order(self) -> Iterator[Step]:
        """The steps; waits for what no step reads come last."""
        left = [len(near) for near in self.before]
        ready = {i for i, n in enumerate(left) if not n and not is_wait(self.steps[i])}
        while ready:
            step = min(ready, key=self._urgency)
            self._run(step)
            ready.remove(step)
            for j in self.after[step]:
                left[j] -= 1
                if not left[j] and not is_wait(self.steps[j]):
                    ready.add(j)
        for i, step in enumerate(self.steps):
            if is_wait(step) and i not in self.done:
                self.done[i] = None
        return (self.steps[i] for i in self.done)

    def _urgency(self, i: int) -> tuple[bool, int, int, int]:
        step = self.steps[i]
        full = is_start(step) and 0 < self.flying > IN_FLIGHT - bytes_of(step.outputs)
        due = (self._arrives(self.steps[w]) for w in self.waits[i] if w not in self.done)
        stalls = any(at > self.now for at in due)
        kind = 2 if full else 0 if is_start(step) else 1
        return stalls or full, kind, self.leads[i], i

    def _arrives(self, wait: Step) -> float:
        return self.arrival.get(wait.inputs[0].name, (0.0, 0))[0]

    def _run(self, i: int) -> None:
        step = self.steps[i]
        for w in self.waits[i]:
            if w not in self.done:
                at, size = self.arrival.pop(self.steps[w].inputs[0].name, (0.0, 0))
                self.now, self.flying = max(self.now, at), self.flying - size
                self.done[w] = None
        self.done[i] = None
        if is_start(step):
            self.network = max(self.network, self.now) + self._transfer(step)
            self.flying += bytes_of(step.outputs)
            for b in step.outputs:
                self.arrival[b.name] = self.network, bytes_of((b,))
        else:
            self.now += time_of(step, self.price)

    def _transfer(self, step: Step) -> float:
        return self.target.transfer_us(max(bytes_of(read_by(step)), bytes_of(step.outputs)))
