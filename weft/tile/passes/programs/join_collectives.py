"""join_collectives: sums over processes that are alike and small become one collective.

before  call ...all_reduce...(x) -> r     after  call ...all_reduce_coalesced...(x, y) -> (r, s)
        call ...wait_tensor...(r) -> v           call ...wait_tensor...(r) -> v
        call ...all_reduce...(y) -> s            call ...wait_tensor...(s) -> w
        call ...wait_tensor...(s) -> w

A collective takes `collective_us`, however small. Joined, those that stand one after the other pay
that once, but the first ones start when the last is there: it is done where their data takes less.
Only the collectives themselves decide, so that processes of one program agree. It is a promise that
all run one: this pass is asked for (passes="+join_collectives").
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from weft.core.arguments import Arguments
from weft.scalar.collectives import bytes_of, is_wait, read_by, whole_form
from weft.scalar.nest import Call, Program, Step
from weft.scalar.order import Order
from weft.targets.machine import Machine


def join_collectives(program: Program, target: Machine) -> Program:
    """Join calls of one collective that have the same arguments, of which none needs another."""
    steps = program.steps
    for bucket in [*_buckets(steps, target)]:
        steps = _joined(steps, bucket)
    return replace(program, steps=steps)


def _buckets(steps: Sequence[Step], target: Machine) -> Iterator[list[Call]]:
    """Library calls that are to be one, none of which another one stands between."""
    before = Order(steps, ordered=False).before
    calls = [i for i, s in enumerate(steps) if isinstance(s, Call) and not is_wait(s)]
    bucket: list[int] = []
    for i in (*calls, None):
        if i is not None and bucket and _fits(steps, before[i], bucket, i, target):
            bucket.append(i)
            continue
        if len(bucket) > 1:
            yield [cast(Call, steps[j]) for j in bucket]
        bucket = [i] if i is not None and _kind(steps[i]) else []


def _fits(
    steps: Sequence[Step], before: int, bucket: Sequence[int], i: int, target: Machine
) -> bool:
    """Whether a call may join those of a bucket, and saves more than these may lose."""
    if _kind(steps[bucket[0]]) != _kind(steps[i]) or any(before >> j & 1 for j in bucket):
        return False
    size = sum(bytes_of(steps[j].outputs) for j in (*bucket, i))
    return target.transfer_us(size) < 2 * target.collective_us  # data takes less than a call


def _kind(step: Step) -> tuple[str, str, str] | None:
    """What calls that are joined share; None for one that is not joined with any."""
    if not isinstance(step, Call) or whole_form(step) is None or step.arguments.sizes:
        return None
    dtype = str(step.outputs[0].type.dtype)
    return step.target, dtype, repr((step.arguments.args[1:], step.arguments.kwargs))


def _joined(steps: Sequence[Step], calls: Sequence[Call]) -> tuple[Step, ...]:
    """The steps with one call in place of the last of these, before all that needs a result."""
    order, first = Order(steps, ordered=False), calls[0]
    operands = [b for call in calls for b in read_by(call)]
    inputs = tuple(dict.fromkeys(operands))
    args = [[{"tensor": inputs.index(b)} for b in operands], *first.arguments.args[1:]]
    arguments = Arguments.of(args, first.arguments.kwargs)
    outputs = tuple(call.outputs[0] for call in calls)
    target = whole_form(first) or first.target
    one = Call(target, arguments, inputs, outputs, first.reason, first.origin)
    return (*order.joined({order.at[call] for call in calls}, one),)
