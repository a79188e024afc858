"""What of the steps of a program has to run before what, and steps that become one.

order = Order(steps)
order.before[3]                 # bits of the positions of all that runs before step 3
order.joined({1, 3}, step)      # the steps with one in place of two, where the last of them stands
"""

from collections import defaultdict
from collections.abc import Collection, Sequence

from weft.scalar.collectives import is_start, is_wait, read_by
from weft.scalar.nest import Call, Step


class Order:
    """What of the steps depends on what, as sets of positions in the bits of ints."""

    def __init__(self, steps: Sequence[Step], ordered: bool = True) -> None:
        self.steps = steps
        self.at = {step: i for i, step in enumerate(steps)}
        self.before: list[int] = []  # all that has to run before a step
        for near in dependencies(steps, ordered):
            bits = 0
            for j in near:
                bits |= self.before[j] | 1 << j
            self.before.append(bits)

    def joined(self, own: Collection[int], one: Step) -> list[Step]:
        """The steps with one in place of some, where the last of them stands.

        What stands before it and needs one of them comes right after it.
        """
        early, late = self.around(own)
        return [*early, one, *late, *self.steps[max(own) + 1 :]]

    def around(self, own: Collection[int]) -> tuple[list[Step], list[Step]]:
        """The other steps before the last of some: needing none of them, and needing some."""
        bits = sum(1 << i for i in own)
        early, late = list[Step](), list[Step]()
        for i, step in enumerate(self.steps[: max(own)]):
            if i not in own:
                (late if self.before[i] & bits else early).append(step)
        return early, late


def dependencies(steps: Sequence[Step], ordered: bool = True) -> list[set[int]]:
    """Of each step, those that have to run before it, as numbers: all that it touches was touched.

    Where they are `ordered`, a library call comes after the one before it, but a wait after its
    collective alone. Nothing that a collective reads is written before its last wait.
    """
    found: list[set[int]] = []
    written: dict[str, int] = {}  # by name: the last step that writes it
    read: defaultdict[str, set[int]] = defaultdict(set)  # those that have read it since
    under: defaultdict[str, set[str]] = defaultdict(set)  # what a collective reads, by its results
    last = None
    for i, step in enumerate(steps):
        moves = is_start(step) or is_wait(step)
        writes = (*step.inputs, *step.outputs) if _is_plain_call(step) else step.outputs
        near = {written[b.name] for b in (*read_by(step), *writes) if b.name in written}
        near |= {r for b in writes for r in read[b.name]}
        if ordered and isinstance(step, Call) and not is_wait(step):
            near |= set() if last is None else {last}
            last = i
        found.append(near - {i})
        for b in read_by(step):
            read[b.name].add(i)
            for held in under[b.name] if is_wait(step) else ():
                read[held].add(i)
        for b in step.outputs if moves else writes:
            written[b.name] = i
            read[b.name] = set()
            under[b.name] = {a.name for a in read_by(step)} if is_start(step) else set()
        written |= {b.name: i for b in read_by(step) if is_wait(step)}  # it is whole from here on
    return found


def _is_plain_call(step: Step) -> bool:
    """A library call that may write to what it is given."""
    return isinstance(step, Call) and not is_start(step) and not is_wait(step)
