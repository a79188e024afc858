"""stage_rows: computes a term that two loops over one row share once, into a row buffer.

before  for a1 in 0..512:  # reduce acc1         after  local row0: f32[512]
            acc1 <- add(acc1, exp(x - acc0))            for a1 in 0..512:  # reduce acc1
        for a2 in 0..512:  # free                           row0[a1] = exp(x - acc0)
            y[a0, a2] = exp(x - acc0) / acc1                acc1 <- add(acc1, exp(x - acc0))
                                                        for a2 in 0..512:  # free
                                                            y[a0, a2] = row0[a2] / acc1
"""

from collections.abc import Sequence
from dataclasses import replace

from weft.core.node import Node, make, postorder, substitute
from weft.scalar.blocks import loads, nodes, stored_in, substitute_block
from weft.scalar.nest import Block, For, Kernel, Load, Local, Stmt, Store, Update, free_variables
from weft.scalar.ops import is_index
from weft.targets.machine import Machine
from weft.tile.analysis.access import span, term_cost, trips
from weft.tile.choices import Choices
from weft.tile.moves.loops import Labels

WORTH = 8.0  # vector instructions; a store and a load of the row cost about two


def stage_rows(kernel: Kernel, target: Machine, choices: Choices) -> Kernel:
    """Stage where the row fits half of the second-level cache."""
    return replace(kernel, body=staged(kernel.body, target, choices))


def staged(body: Block, target: Machine, choices: Choices | None = None) -> Block:
    """The body with its shared terms staged; prices are of the staged body."""
    labels, choices = Labels(body), choices or Choices()

    def visit(block: Block) -> Block:
        stmts = [replace(s, body=visit(s.body)) if isinstance(s, For) else s for s in block]
        for i, first in enumerate(stmts):
            for j in range(i + 1, len(stmts)):
                second = stmts[j]
                if stored_in(tuple(stmts[i:j])) & set(loads(*nodes((second,)))):
                    continue  # what the first read may have changed
                if isinstance(first, For) and isinstance(second, For) and _alike(first, second):
                    joint = _with_store(first, stmts[i + 1 : j], second)
                    if joint is not None:
                        return visit((*stmts[:i], joint, *stmts[i + 1 : j], *stmts[j + 1 :]))
                    staged = _stage(first, second, target, labels, choices)
                    if staged is not None:
                        local, stmts[i], stmts[j] = staged
                        return visit((local, *stmts))
        return tuple(stmts)

    return visit(body)


def _alike(first: For, second: For) -> bool:
    """Whether two loops are innermost and over the same range."""
    flat = not any(isinstance(s, For) for s in (*first.body, *second.body))
    same = first.lo is second.lo and first.hi is second.hi and first.step == second.step
    return flat and same and not first.bind and not second.bind and span(first) is not None


def _with_store(first: For, between: Sequence[Stmt], second: For) -> For | None:
    """The first loop, storing what it computes, where to store that is all the second does."""
    store = second.body[0]
    if len(second.body) != 1 or not isinstance(store, Store) or store.mask is not None:
        return None
    store = store.map_terms(lambda t: substitute((t,), {second.axis: first.axis})[0])
    terms = list(nodes(first.body))
    reads = [t.args for t in terms if getattr(t.op, "buffer", None) == store.buffer]
    busy = store.buffer in loads(*nodes(tuple(between)))
    if busy or store.value not in terms or any(index != store.index for index in reads):
        return None
    return replace(first, body=(*first.body, store))


def _stage(
    first: For, second: For, target: Machine, labels: Labels, choices: Choices
) -> tuple[Local, Stmt, Stmt] | None:
    """Both loops with the most expensive term that they share in a row buffer."""
    computed, same = set(nodes(first.body)), {second.axis: first.axis}

    def moves(term: Node) -> bool:
        return second.axis in free_variables(term)

    def cost(term: Node) -> float:
        return sum(term_cost(n) for n in postorder(term) if moves(n))

    own = [t for t in nodes(second.body) if moves(t) and not isinstance(t.op, Load)]
    both = (t for t in own if not is_index(t) and substitute((t,), same)[0] in computed)
    best = max(both, key=cost, default=None)
    if best is None or trips(first) * best.type.dtype.bytes > target.l2 // 2:
        return None
    if not choices.decide("stage", cost(best) > WORTH):
        return None
    row = labels.buffer("row", best.type.dtype, (span(first),))
    store = Store(row, (first.axis,), substitute((best,), same)[0])
    second_body = substitute_block(second.body, {best: make(Load(row), second.axis)})
    updates = (i for i, s in enumerate(first.body) if isinstance(s, Update))
    at = next(updates, len(first.body))
    first = replace(first, body=(*first.body[:at], store, *first.body[at:]))
    return Local(row), first, replace(second, body=second_body)
