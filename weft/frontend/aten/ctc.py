"""Rows of weft::ctc_loss and its backward (library/ctc.py): recurrences over time.

Graves and others 2006, in logarithms, as ATen has it: forward from the first row the ways to each
state, backward from the last one the ways on. A state is a blank or a label; one comes to it from
itself, from the state before it, and to a label from another label before that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from weft.core.types import Symbolic, i64
from weft.frontend.aten.indexing import index_tensor
from weft.frontend.aten.segments import repeat_interleave
from weft.frontend.aten.table import Row, require
from weft.scalar import ops as s
from weft.scalar.monoid import SUM
from weft.tensor import build
from weft.tensor.build import Tensor, broadcast_in, full, iota, pad, reshape, scan, select
from weft.tensor.loops import recur

NONE = -math.inf  # the logarithm of no way
Tensors = list[Tensor]


@dataclass(frozen=True)
class Slots:
    """Slots as library/ctc.py has them; i64 of their shape, but for the last ones."""

    batch: Tensor  # the sequence that one is of
    place: Tensor  # in its sequence
    length: Tensor  # labels of its sequence
    until: Tensor  # rows of its sequence
    label: Tensor  # the class of its label; of none the blank
    last: Tensor  # [batch]: a sequence's last slot, counted over all

    @property
    def padded(self) -> bool:
        return self.place.rank == 2

    def of(self, x: Tensor) -> Tensor:
        """What sequences have, [batch], for each slot."""
        if self.padded:
            return broadcast_in(x, self.place.shape, (0,))
        return index_tensor(x, [self.batch], wraps=False)

    def logarithms(self, log_probs: Tensor, blank: int) -> Tensors:
        """Of each row those of the blank, for sequences or for slots, and of the slots' labels."""
        plain = select(log_probs, 2, blank)
        plain = plain if self.padded else index_tensor(plain, [None, self.batch], wraps=False)
        return [plain, index_tensor(log_probs, [None, self.batch, self.label], wraps=False)]

    def masks(self) -> Tensors:
        """Which slots are the first, and which have another label than the one before."""
        first = s.eq(self.place, 0)
        return [first, ~first & s.ne(self.label, moved(self.label, 1, -1))]


def slots_of(targets: Tensor, inputs: Tensor, lengths: Tensor, blank: int, rows: int) -> Slots:
    """Lengths that are negative, too long, or not those of all labels are a fault."""
    count, size = lengths.shape[0], targets.shape[-1]
    inputs = s.checked_index(inputs, rows + 1)
    if targets.rank == 2:
        shape = (count, size + 1)
        lengths = s.checked_index(lengths, size + 1)
        batch, place = iota(shape, 0), iota(shape, 1)
        length, until = (broadcast_in(t, shape, (0,)) for t in (lengths, inputs))
        named, last = pad(targets, [(0, 0), (0, 1)]), iota((count,), 0) * (size + 1) + lengths
    else:
        shape = (size + count,)
        batch, last = repeat_interleave(lengths + 1, size + count), scan(SUM, lengths + 1, 0) - 1
        length, until, end = (index_tensor(t, [batch], False) for t in (lengths, inputs, last))
        place = iota(shape, 0) - (end - length)
        at = s.minimum(iota(shape, 0) - batch, max(size - 1, 0))
        named = index_tensor(targets, [at], False) if size else full(shape, blank, i64)
    label = s.where(place < length, named, blank)
    return Slots(batch, place, length, until, label, last)


def moved(x: Tensor, by: int, fill: float) -> Tensor:
    """What the slot before has, with `by` -1 the one after."""
    return pad(x, [*[(0, 0)] * (x.rank - 1), (by, -by)], fill)


def either(*ways: Tensor) -> Tensor:
    """The logarithm of the sum of what these are logarithms of."""
    top = reduce(s.maximum, ways)
    top = s.where(s.eq(top, NONE), 0.0, top)
    return s.log(reduce(s.add, (s.exp(way - top) for way in ways))) + top


def wide(x: Tensor, like: Tensor) -> Tensor:
    """A row's logarithms of the blank, for each slot."""
    return broadcast_in(x, like.shape, (0,))


def loss(
    log_probs: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, blank: int, zero: bool
) -> Tensors:
    rows, slots = _begin(log_probs, targets, inputs, lengths, blank)

    def step(blanks: Tensor, labels: Tensor, *given: Tensor) -> tuple[Tensors, Tensors]:
        plain, named, first, other = given
        before = moved(labels, 1, NONE)
        after = either(blanks, s.where(first, NONE, before)) + wide(plain, blanks)
        ways = blanks, labels, s.where(other, before, NONE)
        found = [after, either(*ways) + named]
        return found, found

    shape, masks = slots.place.shape, slots.masks()
    never = full(shape, NONE, log_probs.dtype)
    begin = [s.where(masks[0], 0.0, never), never]
    _, stacks = recur(step, begin, slots.logarithms(log_probs, blank), masks)
    flat = [reshape(x, (rows, -1)) for x in stacks]
    row = s.maximum(inputs - 1, 0)
    ends = [index_tensor(x, [row, s.maximum(at, 0)], False)
            for x, at in zip(flat, (slots.last, slots.last - 1), strict=True)]  # fmt: skip
    losses = -either(ends[0], s.where(lengths > 0, ends[1], NONE))
    none = s.where(lengths > 0, math.inf, full(lengths.shape, 0, log_probs.dtype))
    return [s.where(s.eq(inputs, 0), none, losses), *stacks]


def loss_backward(
    g: Tensor, log_probs: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor,
    losses: Tensor, blanks: Tensor, labels: Tensor, blank: int, zero: bool,
) -> Tensor:  # fmt: skip
    """exp(log_probs) less the probability that the state is there, given the targets."""
    rows, slots = _begin(log_probs, targets, inputs, lengths, blank)

    def step(on_blank: Tensor, on_label: Tensor, *given: Tensor) -> tuple[Tensors, Tensors]:
        row, plain, named, blanks, labels, place, length, until, other, losses = given
        end, left = s.eq(broadcast_in(row, place.shape, ()), until - 1), length - place
        after, another = moved(on_blank, -1, NONE), s.where(other, moved(on_label, -1, NONE), NONE)
        ways = on_label, s.where(left > 0, after, NONE), another
        both = [either(on_blank, on_label), either(*ways)]
        both = [
            s.where(end, s.where(s.eq(left, i), 0.0, full(place.shape, NONE, b.dtype)), b)
            for i, b in enumerate(both)
        ]
        there = [s.exp(a + b + losses) for a, b in zip((blanks, labels), both, strict=True)]
        return [both[0] + wide(plain, place), both[1] + named], there

    never = full(slots.place.shape, NONE, log_probs.dtype)
    other = moved(slots.masks()[1], -1, False) & (slots.place + 1 < slots.length)
    whole = [slots.place, slots.length, slots.until, other, slots.of(losses)]
    sliced = [iota((rows,), 0), *slots.logarithms(log_probs, blank), blanks, labels]
    _, there = recur(step, [never, never], sliced, whole, backward=True)
    known = _by_class(log_probs, slots, blank, there)

    def along(x: Tensor, axis: int) -> Tensor:
        return broadcast_in(x, log_probs.shape, (axis,))

    infinite = s.eq(losses, math.inf)
    undefined = along(infinite, 1) | s.eq(log_probs, NONE)
    found = (s.exp(log_probs) - s.where(undefined, math.nan, known)) * along(g, 1)
    used = along(iota((rows,), 0), 0) < along(inputs, 1)
    return s.where(used & ~along(infinite, 1) if zero else used, found, 0.0)


def _begin(
    log_probs: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, blank: int
) -> tuple[int, Slots]:
    """How many rows there are, and the slots."""
    given: Sequence[Tensor] = (log_probs, targets, inputs, lengths)
    require(not any(isinstance(n, Symbolic) for t in given for n in t.shape), "has free sizes")
    require(log_probs.type.size > 0, "has no rows")
    return log_probs.shape[0], slots_of(targets, inputs, lengths, blank, log_probs.shape[0])


def _by_class(log_probs: Tensor, slots: Slots, blank: int, there: Tensors) -> Tensor:
    """The sums of blanks' and labels' probabilities in each row, by sequence and class."""
    rows, count, classes = log_probs.shape
    if slots.padded:
        label = broadcast_in(slots.label, there[1].shape, (1, 2))
        blanks = build.total(there[0], (2,))
        sums = build.scatter(SUM, full(log_probs.shape, 0, log_probs.dtype), 2, label, there[1])
    else:
        batch, flat = slots.batch, slots.batch * classes + slots.label
        at, label = (broadcast_in(t, there[1].shape, (1,)) for t in (batch, flat))
        blanks = build.scatter(SUM, full((rows, count), 0, log_probs.dtype), 1, at, there[0])
        base = full((rows, count * classes), 0, log_probs.dtype)
        sums = reshape(build.scatter(SUM, base, 1, label, there[1]), log_probs.shape)
    own = s.eq(iota(log_probs.shape, 2), blank)
    return sums + s.where(own, broadcast_in(blanks, log_probs.shape, (0, 1)), 0.0)


ROWS = {
    "weft.ctc_loss.default": Row(loss, "stored"),
    "weft.ctc_loss_backward.default": Row(loss_backward, "stored"),
}
