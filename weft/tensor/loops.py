"""Recurrences as functions of tensors, and their gradients.

(h,), (hs,) = recur(lambda h, x, w: ((tanh(x + h @ w),) * 2), [h0], [x], [w])
"""

from collections.abc import Callable, Sequence

from weft.core.node import Graph, Node, Nodes, make, op_of, substitute
from weft.core.types import TensorType
from weft.tensor.build import Tensor, concat, full, slice_, unsqueeze
from weft.tensor.ops import Input, Part
from weft.tensor.recurrence import Recurrence

Tensors = Sequence[Tensor]


def recur(
    step: Callable[..., tuple[Tensors, Tensors]],
    carried: Tensors,
    sliced: Tensors,
    whole: Tensors,
    backward: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """What is carried at last, and the stacks; `step` gives what is carried on, and the slices."""
    types = [t.type for t in carried]
    types += [TensorType(x.dtype, x.shape[1:]) for x in sliced]
    types += [t.type for t in whole]
    inputs = tuple(make(Input(f"x{i}", t)) for i, t in enumerate(types))
    after, stacked = step(*map(Tensor, inputs))
    body = Graph("tensor", "body", inputs, tuple(t.node for t in (*after, *stacked)))
    op = Recurrence(sliced[0].shape[0], len(carried), len(sliced), backward, body)
    node = make(op, *(t.node for t in (*carried, *sliced, *whole)))
    parts = [Tensor(make(Part(i), node)) for i in range(len(body.outputs))]
    return parts[: len(carried)], parts[len(carried) :]


def before(first: Tensor, stack: Tensor, backward: bool = False) -> Tensor:
    """What each iteration had of a carried tensor, whose values after each one are stacked."""
    others = slice_(stack, 0, int(backward), stack.shape[0] - 1)
    pieces = [unsqueeze(first, 0), others]
    return concat(pieces[::-1] if backward else pieces, 0)


Gradients = Callable[[Nodes, Nodes, Nodes], Nodes]


def recur_back(
    op: Recurrence,
    operands: Tensors,
    befores: Tensors,
    cotangents: Sequence[Tensor | None],
    gradients: Gradients,
) -> list[Tensor]:
    """The gradients of all operands of a recurrence; those of what is no float are zeros.

    `befores` are stacks of what each iteration had of the carried tensors. `cotangents` are those
    of the results, None for zeros. `gradients(results, seeds, xs)` differentiates the body.
    """
    n, inputs, outputs = op.carried, op.body.inputs, op.body.outputs
    floats = [i for i, x in enumerate(inputs) if x.type.dtype.is_float]
    kept = [i for i in floats if i < n]
    slices = [i for i in floats if n <= i < n + op.sliced]
    same = [i for i in floats if i >= n + op.sliced]
    given = [(i, g) for i, g in enumerate(cotangents[n:], n) if g is not None]
    zeros = {i: full(operands[i].shape, 0, operands[i].dtype) for i in (*kept, *same)}
    firsts = [(cotangents[i] if i < n else None) or zero for i, zero in zeros.items()]

    def step(*values: Tensor) -> tuple[Tensors, Tensors]:
        found = list(values)
        held, sums = found[: len(kept)], found[len(kept) : len(firsts)]
        rows = found[len(firsts) : len(firsts) + len(given)]
        inside = [t.node for t in found[len(firsts) + len(given) :]]
        known = dict(zip(inputs, inside, strict=True))
        results = substitute(outputs, known)
        seeds: dict[Node, Tensor] = {}
        numbers = (*kept, *(i for i, _ in given))
        for i, g in zip(numbers, (*held, *rows), strict=True):
            seeds[results[i]] = seeds[results[i]] + g if results[i] in seeds else g
        xs = tuple(known[inputs[i]] for i in floats)
        made = gradients((*seeds,), tuple(g.node for g in seeds.values()), xs)
        by = dict(zip(floats, map(Tensor, made), strict=True))
        added = [s + by[i] for s, i in zip(sums, same, strict=True)]
        return [*(by[i] for i in kept), *added], [by[i] for i in slices]

    sliced = [*(g for _, g in given), *befores, *operands[n : n + op.sliced]]
    lasts, stacks = recur(step, firsts, sliced, operands[n + op.sliced :], not op.backward)
    found = dict(zip((*kept, *same, *slices), (*lasts, *stacks), strict=True))
    return [found[i] if i in found else full(t.shape, 0, t.dtype) for i, t in enumerate(operands)]


def body_of(results: Tensor) -> Recurrence:
    """The recurrence that a result is of."""
    return op_of(results.node.args[0], Recurrence)
