"""split_recurrences: takes out of a recurrence what need not run in order.

before  recurrence over x_t, h:  h' = tanh(x_t @ u + h @ w);  y_t = h' @ v;  s' = s + h'^T @ g_t
after   a = x @ u                                # of all slices in one product
        recurrence over a_t, h:  h' = tanh(a_t + h @ w)
        y = hs @ v;  s' = s + sum of hs^T @ g, over slices too

Where the target repeats no kernels, and where the body has library calls, it is unrolled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.core.errors import UnsupportedOpError
from weft.core.node import Graph, Node, Nodes, bottom_up, make, op_of, postorder, substitute
from weft.core.rules import function_name
from weft.core.text.graph import fresh
from weft.core.types import TensorType
from weft.scalar.affine import linear
from weft.scalar.resize import sizes_of
from weft.tensor.batched import BATCHED, Batch, Value
from weft.tensor.build import Tensor, concat, flip, select, unsqueeze
from weft.tensor.ops import (
    ALONE,
    Gather,
    Index,
    Input,
    Map,
    Part,
    Reduce,
    Scalar,
    View,
    is_expansion,
    position,
)
from weft.tensor.recurrence import LONGEST, Recurrence
from weft.tensor.rules import simplify


def split_recurrences(graph: Graph, repeats: bool) -> Graph:
    """Split every recurrence; unroll it unless the target repeats kernels."""
    if not any(isinstance(n.op, Recurrence) for n in graph.nodes()):
        return graph
    done: dict[Node, Sequence[Node]] = {}  # the results of each recurrence

    def change(node: Node) -> Node | None:
        if isinstance(node.op, Recurrence):
            inner = split_recurrences(node.op.body, repeats=False)
            whole = repeats and not sizes_of(node.op) and _is_native(inner)
            one = make(replace(node.op, body=simplify(inner)), *node.args)
            done[node] = _Loop(one).results() if whole else unrolled(one)
        if isinstance(node.op, Part) and node.args[0] in done:
            return done[node.args[0]][node.op.number]
        return None

    return simplify(graph.rewrite(change))


def _is_native(body: Graph) -> bool:
    return all(isinstance(n.op, BATCHED | Input) for n in body.nodes())


def unrolled(node: Node) -> list[Node]:
    """The results of a recurrence without one; UnsupportedOpError where it is long."""
    op = op_of(node, Recurrence)
    if op.count > LONGEST:
        told = f"a recurrence of {op.count} steps, of which {LONGEST} at most are unrolled"
        raise UnsupportedOpError(f"{told}, as on GPUs and with library calls inside")
    slices = range(op.carried, op.carried + op.sliced)
    given = [
        [select(Tensor(a), 0, t).node for t in range(op.count)] if i in slices else a
        for i, a in enumerate(node.args)
    ]

    def step(values: Sequence[Node]) -> Nodes:
        return substitute(op.body.outputs, dict(zip(op.body.inputs, values, strict=True)))

    def stack(rows: Sequence[Node]) -> Node:
        return concat([unsqueeze(Tensor(row), 0) for row in rows], 0).node

    return list(op.unrolled(step, given, stack))


@dataclass
class _Carry:
    """A carried tensor: as the body has it, as it is at first, and as it is carried on."""

    inner: Node
    first: Node
    after: Node
    last: Node | None = None  # stands for what it is at last


class _Loop:
    """One recurrence while it is split; placeholders stand for the results of what is left."""

    def __init__(self, node: Node) -> None:
        op = op_of(node, Recurrence)
        self.count, self.backward = op.count, op.backward
        inputs, outputs = op.body.inputs, op.body.outputs
        n, end = op.carried, op.carried + op.sliced
        carried = zip(inputs[:n], node.args[:n], outputs[:n], strict=True)
        self.carried = [_Carry(*c) for c in carried]
        self.sliced = dict(zip(inputs[n:end], node.args[n:end], strict=True))
        self.whole = dict(zip(inputs[end:], node.args[end:], strict=True))
        self.outputs = outputs[n:]
        self.stacks: dict[Node, Node] = {}  # of the body -> what stands for its stack
        self.taken = {op_of(i, Input).label for i in inputs}

    def results(self) -> list[Node]:
        flipped = self.turn()
        self.sink()
        self.hoist()
        lasts, every = [self.last(c) for c in self.carried], [*self.carried]
        sums = {c.inner: found for c in every if (found := self.summed(c)) is not None}
        stacks = [self.stacked(y) for y in self.outputs]
        first = [sums.get(c.inner, last) for c, last in zip(every, lasts, strict=True)]
        stacks = [flip(Tensor(s), (0,)).node if flipped else s for s in stacks]
        return list(substitute((*first, *stacks), self.rest()))

    # ---- what the loop reads

    def replace(self, changes: dict[Node, Node]) -> None:
        """Put others for nodes of the body."""
        after = [c.after for c in self.carried]
        found = substitute((*after, *self.outputs), changes)
        for c, new in zip(self.carried, found, strict=False):
            c.after = new
        self.outputs = found[len(after) :]

    def fresh(self, stem: str, type_: TensorType) -> Node:
        return make(Input(fresh(stem, self.taken), TensorType(type_.dtype, type_.shape)))

    def turn(self) -> bool:
        """Go the other way where most slices are of tensors that are reversed."""
        reversed_ = [x for x in self.sliced.values() if _is_reversed(x)]
        if 2 * len(reversed_) <= len(self.sliced):
            return False
        self.backward = not self.backward
        self.sliced = {i: flip(Tensor(x), (0,)).node for i, x in self.sliced.items()}
        return True

    def sink(self) -> None:
        """Views of tensors that are the same each time are taken in the loop."""
        changes: dict[Node, Node] = {}
        for inner, outer in [*self.whole.items()]:
            views: list[Node] = []
            while isinstance(outer.op, View):
                views.append(outer)
                (outer,) = outer.args
            if not views and not isinstance(outer.op, Scalar | Index):
                continue
            del self.whole[inner]
            found = outer
            if outer.args or isinstance(outer.op, Input):
                found = self.fresh(op_of(inner, Input).label, outer.type)
                self.whole[found] = outer
            for view in reversed(views):
                found = make(view.op, found)
            changes[inner] = found
        self.replace(changes)
        self.simplify()

    def simplify(self) -> None:
        inner = (*(c.inner for c in self.carried), *self.sliced, *self.whole)
        outputs = (*(c.after for c in self.carried), *self.outputs)
        found = simplify(Graph("tensor", "body", inner, outputs)).outputs
        for c, new in zip(self.carried, found, strict=False):
            c.after = new
        self.outputs = found[len(self.carried) :]

    def hoist(self) -> None:
        """What no carried tensor decides: of no slice, and sums over slices' own axes."""
        needs: dict[Node, int] = dict.fromkeys(self.sliced, 1)  # 0: the same each time, 2: in order
        needs |= {c.inner: 2 for c in self.carried}
        roots = (*(c.after for c in self.carried), *self.outputs)
        nodes = [*postorder(*roots)]
        for n in nodes:
            needs.setdefault(n, max((needs[a] for a in n.args), default=0))
        changes: dict[Node, Node] = {}
        covered: set[Node] = set()
        batch = Batch(self.known(), self.count)
        for n in reversed(nodes):
            folds = needs[n] == 1 and isinstance(n.op, Reduce)
            fixed = needs[n] == 0 and isinstance(n.op, Map | Reduce | Gather | ALONE)
            if n in covered or not (folds or (fixed and not is_expansion(n))):
                continue
            covered.update(postorder(n))
            outer = batch.of(n) if folds else substitute((n,), self.whole)[0]
            changes[n] = self.fresh("hoisted", n.type)
            (self.sliced if folds else self.whole)[changes[n]] = outer
        self.replace(changes)

    def known(self) -> dict[Node, Value]:
        """What stands for the body's inputs that are not carried, outside."""
        same = {i: (x, False) for i, x in self.whole.items()}
        return {**same, **{i: (x, True) for i, x in self.sliced.items()}}

    # ---- what it makes

    def inside(self) -> set[Node]:
        """What is computed for what is carried."""
        return {*postorder(*(c.after for c in self.carried))}

    def batch(self, node: Node) -> Batch | None:
        """How a tensor of the body is computed outside; None where it sums nothing there."""
        inside, known = self.inside() if self.carried else set[Node](), self.known()
        frontier: dict[Node, None] = {}
        folds = not self.carried

        def below(n: Node) -> Nodes:
            kept = n in inside and not isinstance(n.op, View | Scalar | Index)
            return () if kept or n in known else n.args

        walked: dict[Node, None] = {}
        bottom_up(node, walked, lambda _: None, below)
        inner = {c.inner for c in self.carried}
        for n in walked:
            if n in inner or (n not in known and n in inside and below(n) == () and n.args):
                frontier[n] = None
            elif n not in known:
                folds = folds or isinstance(n.op, Reduce)
        if not folds or node in frontier:
            return None
        return Batch({**known, **{n: (self.stack(n), True) for n in frontier}}, self.count)

    def stack(self, node: Node) -> Node:
        """What stands for all values of a tensor of the body."""
        if node not in self.stacks:
            shape = (self.count, *node.type.shape)
            self.stacks[node] = self.fresh("stack", TensorType(node.type.dtype, shape))
        return self.stacks[node]

    def stacked(self, node: Node) -> Node:
        """All values of a result, by sums outside where it is one of what the loop makes."""
        known = self.known()
        batch = Batch(known, self.count) if node in known else self.batch(node)
        return self.stack(node) if batch is None else batch.of(node)

    def summed(self, carry: _Carry) -> Node | None:
        """A carried sum as one sum outside, where that is a fold; the loop loses it then."""
        terms = carry.after.args if function_name(carry.after) == "add" else ()
        others = [t for t in terms if t is not carry.inner]
        rest = (*(c.after for c in self.carried if c is not carry), *self.outputs, *others)
        if len(others) != 1 or len(terms) != 2 or carry.inner in postorder(*rest):
            return None
        before, self.carried = self.carried, [c for c in self.carried if c is not carry]
        batch = self.batch(others[0])
        if batch is None:
            self.carried = before
            return None
        return (Tensor(carry.first) + Tensor(batch.summed(others[0]))).node

    def last(self, carry: _Carry) -> Node:
        """What is carried at last: in the stack, where that has it."""
        if carry.after in self.outputs:
            at = 0 if self.backward else self.count - 1
            return select(Tensor(self.stack(carry.after)), 0, at).node
        carry.last = self.fresh("last", carry.inner.type)
        return carry.last

    def rest(self) -> dict[Node, Node]:
        """The recurrence that is left: its results, by what stands for them."""
        if not self.carried and not self.stacks:
            return {}
        outputs = (*(c.after for c in self.carried), *self.stacks)
        used = {*postorder(*outputs)}
        sides = self.sliced, self.whole
        sliced, whole = ({i: x for i, x in side.items() if i in used} for side in sides)
        inputs = (*(c.inner for c in self.carried), *sliced, *whole)
        body = Graph("tensor", "body", inputs, outputs)
        op = Recurrence(self.count, len(self.carried), len(sliced), self.backward, body)
        firsts = (c.first for c in self.carried)
        node = make(op, *firsts, *sliced.values(), *whole.values())
        wanted = [*(c.last for c in self.carried), *self.stacks.values()]
        return {n: make(Part(i), node) for i, n in enumerate(wanted) if n is not None}


def _is_reversed(x: Node) -> bool:
    """Whether a view has its first axis from the end on."""
    if not isinstance(x.op, View):
        return False
    factors = [linear(t)[0].get(position(0), 0) for t in x.op.index]
    return any(k < 0 for k in factors) and not any(k > 0 for k in factors)
