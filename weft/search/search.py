"""search: computes polynomials of tensors in the cheapest of the ways that laws find equal.

graph = search(graph, price, target)
(A @ B) @ c -> A @ (B @ c)          sum(A @ B) -> sum(A, rows) @ sum(B, columns)
(q @ k') @ v -> q @ (k' @ v)        A @ C + B @ C -> (A + B) @ C
one_hot(i) @ E -> E[i]              tril(ones) @ x -> running sums of x

A find is taken where check.py lets it stand in, by families of inputs and a bound of rounding
errors, and the price of fusion is lower by MARGIN.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from weft.core.node import Graph, Node, Nodes, bottom_up, make, postorder
from weft.core.passes import PassLog
from weft.scalar.nest import Buffer
from weft.search.check import Verdict, compare, same
from weft.search.egraph import Conflict, EGraph
from weft.search.extract import Cyclic, Extraction, Plan
from weft.search.families import UNKNOWN, Scaling
from weft.search.laws import LAWS
from weft.search.quotients import RECIPROCAL, as_products, as_quotients, rewritten
from weft.search.reader import Reader, is_of_root, root_axes
from weft.search.regions import Kind, Region, is_turned, may_have, regions
from weft.search.saturate import Law, Limits, saturate
from weft.search.shown import shown
from weft.search.siblings import selections, side_by_side
from weft.search.writer import Expression, Writer
from weft.targets.machine import Machine
from weft.tensor.alike import Prices
from weft.tensor.fuse import partition
from weft.tensor.groups import Price
from weft.tensor.lower import lower_group
from weft.tensor.ops import Gather, Index, Input, Map, Reduce, Scalar, Scan, View
from weft.tensor.recurrence import CALLS
from weft.tensor.rules import simplify

LINEAR = "add subtract maximum minimum negate absolute relu where".split()  # of the same degree
MARGIN = 0.9  # of the old price, at most
FEWER = 4  # times fewer multiply-adds, at least, for a price that is the same
FEW = 4  # results of a region that its story writes out
LIMITS = {"on": Limits(), "deep": Limits(20000, 30, 20000, 2000, 1000)}


Plans = tuple[Reader, Plan, Plan]  # of a region, as it is written and the cheapest


class Found(NamedTuple):
    """What became of a region: its new outputs, if they are taken, and how that came about."""

    outputs: Nodes | None
    story: str


@dataclass
class Search:
    price: Price
    target: Machine
    limits: Limits = LIMITS["on"]
    laws: Collection[Law] = LAWS
    memo: dict[Any, Found] = field(default_factory=dict[Any, Found])
    plans: dict[Any, tuple[Plans | None, str]] = field(default_factory=dict[Any, Any])
    prices: Prices = field(default_factory=Prices)  # of kernels that were met before
    whole: tuple[Graph, tuple[Graph, set[Node]]] | None = None  # the last graph, and as products

    def region(
        self, region: Region, fixed: Collection[Node] = (), known: Scaling = UNKNOWN
    ) -> Found:
        """The find for a region, where placeholders `fixed` are constants; equal ones share it."""
        facts = (*known.inverse.items(), *known.degrees.items())
        key = (region.outputs, *(i for i in region.inputs if i in fixed), *facts)
        if key not in self.memo:
            start = time.perf_counter()
            try:
                outputs, story = self._find(region, fixed, known)
            except (Conflict, Cyclic, OverflowError, RecursionError) as error:
                outputs, story = None, f"given up: {error}"
            spent = f"{(time.perf_counter() - start) * 1e3:.0f} ms"
            self.memo[key] = Found(outputs, f"{spent}; {story}")
        return self.memo[key]

    def _find(
        self, region: Region, fixed: Collection[Node], known: Scaling
    ) -> tuple[Nodes | None, str]:
        key = region.outputs, *(i for i in region.inputs if i in fixed)
        if key not in self.plans:  # whatever is known of the inputs
            self.plans[key] = self._planned(region, fixed)
        plans, story = self.plans[key]
        if plans is None:
            return None, story
        reader, before, after = plans
        old, new = before.work, after.work
        outputs, verdict = stand_in(region, reader, self.target, before, after, known)
        if outputs is None or verdict.why:
            return None, f"{story}; refused: {verdict.why}"
        outputs = simplify(Graph("tensor", "region", region.inputs, outputs)).outputs
        was, is_ = (self._us(region.inputs, o, fixed) for o in (region.outputs, outputs))
        story += f"; priced {was:.1f} -> {is_:.1f} us; {verdict.shown}"
        many = old.folded > new.folded * FEWER or old.evaluations > new.evaluations
        less = many and is_ <= was  # small tensors: a kernel costs more than its sums
        most = was if after is before else MARGIN * was  # the same sums lose nothing
        return (outputs, story) if less or is_ < most else (None, f"{story}; not cheaper")

    def _planned(self, region: Region, fixed: Collection[Node]) -> tuple[Plans | None, str]:
        """What is written and the cheapest that is equal, where it may be worth a check."""
        reader = Reader(region.outputs, fixed, most=self.limits.written)
        g, roots = reader.graph, tuple(reader.roots)
        if len(g.ids) > self.limits.written:
            return None, f"{len(g.ids)} nodes, too many"
        before = Extraction(g, self.target, roots).cheapest()
        rounds = saturate(g, self.laws, self.limits)
        after = Extraction(g, self.target, roots).cheapest()
        story = f"{len(g.ids)} nodes, {rounds} rounds; {laws_used(g)}"
        fewer = any(x > y for x, y in zip(before.work, after.work, strict=True))
        if not fewer or after.us >= MARGIN * before.us or after.sums >= MARGIN * before.sums:
            if not any(map(is_turned, postorder(*region.outputs))):
                return None, f"{story}; nothing cheaper"
            after = before  # in the order of axes in which the writer has it
        elif len(before.expressions) <= FEW:
            story += "".join(
                f"; {word} {', '.join(map(shown, plan.expressions))}"
                for word, plan in (("was", before), ("is", after))
            )
        story += f"; {before.us:.1f} -> {after.us:.1f} us"
        story += f", multiply-adds {before.work.folded} -> {after.work.folded}"
        return (reader, before, after), story

    def _us(self, inputs: Nodes, outputs: Nodes, fixed: Collection[Node]) -> float:
        """The price of the kernels that compute the outputs; those of constants run once."""
        graph = Graph("tensor", "region", inputs, outputs)
        once = constants(graph, fixed)
        kept = selections(graph, once, self.target)
        groups = partition(graph, self.price, self.target, kept=kept, prices=self.prices)
        stored = [n for group in groups for n in group]
        buffers = {n: Buffer(f"t{i}", n.type) for i, n in enumerate((*inputs, *stored))}
        ran = (g for g in groups if not once.issuperset(g))
        return sum(self.price(lower_group(g, buffers, buffers)) for g in ran)


def stand_in(
    region: Region, reader: Reader, target: Machine, before: Plan, after: Plan, known: Scaling
) -> tuple[Nodes | None, Verdict]:
    """The tensors of a plan, read back and compared with it, and whether it may replace the old."""
    dtype, extents = region.outputs[0].type.dtype, reader.graph.extents
    why = unsafe([e for r in after.expressions for e in r.all()])
    if why:
        return None, Verdict(why)
    verdict = compare(before.expressions, after.expressions, extents, dtype, known)
    if verdict.why:
        return None, verdict
    writer = Writer(dtype, extents, reader.splits)
    shapes = [old.type.shape for old in region.outputs]
    outputs = tuple(map(writer.root, after.expressions, shapes, root_axes(shapes)))
    back = Reader(outputs, (), {a: n for a, n in reader.splits.items() if is_of_root(a)})
    again = Extraction(back.graph, target, tuple(back.roots)).cheapest()
    found = as_written(after.expressions) if dtype.is_float else after.expressions
    if not same(found, again.expressions, extents | back.graph.extents, True):
        return None, Verdict("the tensors are not what was found")
    for old, new in zip(region.outputs, outputs, strict=True):
        if not set(_inputs(new)) <= set(_inputs(old)):
            return None, Verdict("a result would depend on more tensors")
    return outputs, verdict


def as_written(roots: Iterable[Expression]) -> list[Expression]:
    """With each number as the float that is written for it, which 1 / 3 is not."""
    made: dict[int, Expression] = {}
    for e in (e for r in roots for e in r.all()):
        data = Fraction(float(e.data)) if e.kind == "const" else e.data
        made[id(e)] = Expression(e.kind, data, tuple(made[id(a)] for a in e.args))
    return [made[id(r)] for r in roots]


def unsafe(found: Iterable[Expression]) -> str:
    """What conditions and running sums may not become, whatever shortened axes show of it."""
    for e in found:
        if e.kind == "mask" and e.data[1]:
            return "a condition stays that keeps what may be infinite out of a product"
        scans = Counter(id(s) for a in e.args for s in a.all() if s.kind == "scan")
        if e.kind == "add" and any(n > 1 for n in scans.values()):
            return "a difference of running sums is worse than the sum between"
    return ""


def degrees(graph: Graph) -> dict[Node, float]:
    """Of each tensor, the power of a scale of all inputs that it has: 2 for a product."""
    found: dict[Node, float] = {}
    for n in graph.nodes():
        of = [found[a] for a in n.args]
        match n.op.function.name if isinstance(n.op, Map) else "":
            case "multiply":
                found[n] = sum(of)
            case "divide" | "reciprocal" | "rsqrt" | "sqrt" as name:
                powers = {"divide": (1, -1), "reciprocal": (-1,), "rsqrt": (-0.5,), "sqrt": (0.5,)}
                found[n] = sum(p * d for p, d in zip(powers[name], of, strict=True))
            case name if name in LINEAR:
                found[n] = max(of[-2:])  # not of a condition
            case _:
                moved = isinstance(n.op, Reduce | View | Gather | Scan)
                found[n] = of[0] if moved else float(isinstance(n.op, Input))
    return found


def normalised(region: Region) -> dict[Node, Node | None]:
    """The reciprocals that a region reads, and what they were computed from that it reads too."""
    found: dict[Node, Node | None] = {}
    pairs = [*zip(region.inputs, region.leaves, strict=True)]
    for placeholder, leaf in pairs:
        if leaf.op == RECIPROCAL:
            seen: dict[Node, None] = {}
            bottom_up(leaf.args[0], seen, lambda _: None, lambda n: _unless(n in region.leaves, n))
            found[placeholder] = next((p for p, n in pairs if n in seen), None)
    return found


def _unless(ends: bool, node: Node) -> Nodes:
    return () if ends else node.args


def _inputs(root: Node) -> list[Node]:
    return [n for n in postorder(root) if isinstance(n.op, Input)]


def laws_used(g: EGraph) -> str:
    counts = Counter(law for law, *_ in g.unions if law != "congruence")
    return ", ".join(f"{law} {n}" for law, n in counts.most_common())


def constants(graph: Graph, fixed: Collection[Node]) -> set[Node]:
    """The tensors that are computed from constants alone."""
    found = set(fixed)
    if fixed:
        for n in graph.nodes():
            made = n.args and not isinstance(n.op, CALLS) and found.issuperset(n.args)
            if made or isinstance(n.op, Scalar | Index):
                found.add(n)
    return found


def kept_once(graph: Graph, fixed: Collection[int], target: Machine) -> set[Node]:
    """What fusion stores, as it knows nothing of what runs once; inputs `fixed` are constants."""
    return selections(graph, constants(graph, [graph.inputs[i] for i in fixed]), target)


def search(
    graph: Graph,
    price: Price,
    target: Machine,
    log: PassLog | None = None,
    effort: str = "on",
    fixed: Collection[int] = (),
    prices: Prices | None = None,
) -> Graph:
    """Replaces each region by what is found for it; `fixed` inputs are constants.

    `prices` of kernels are added to, for what is fused after that.

    First regions with conditions on coordinates, which go where they are found to be deltas or
    steps; those that stay are leaves of the regions after that, as all other conditions are. Then
    those with functions and maxima, which are leaves in turn.
    """
    if effort == "off":
        return graph
    finder = Search(price, target, LIMITS[effort], prices=Prices() if prices is None else prices)
    kinds: tuple[Kind, ...] = ("masked", "functions", "plain")
    for kind in kinds:
        graph = _searched(graph, finder, kind, fixed, log)
    once = constants(graph, [graph.inputs[i] for i in fixed])
    beside = side_by_side(graph, once, target, log)
    return simplify(with_roots(graph, beside, ())) if beside else graph


def _searched(
    graph: Graph, finder: Search, kind: Kind, fixed: Collection[int], log: PassLog | None
) -> Graph:
    if not may_have(kind, [*graph.nodes()]):
        return graph
    if finder.whole is None or finder.whole[0] is not graph:
        finder.whole = graph, as_products(graph)
    whole, products = finder.whole[1]
    once, powers = constants(whole, [whole.inputs[i] for i in fixed]), degrees(whole)
    replaced: dict[Node, Node] = {}
    for region in regions(whole, kind):
        read = [*zip(region.inputs, region.leaves, strict=True)]
        scaling = Scaling(normalised(region), {p: powers[n] for p, n in read})
        found = finder.region(region, {p for p, n in read if n in once}, scaling)
        if log is not None and log.verbose > 1:
            names = ", ".join(whole.names.get(r, "t") for r in region.roots)
            leaves = ((whole.names.get(n), getattr(n.op, "label", "t")) for n in region.leaves)
            of = ", ".join(f"x{i} = {name or label}" for i, (name, label) in enumerate(leaves))
            log.show_choices(f"region {names} ({of}): {found.story}\n")
        if found.outputs is not None:
            made = region.here(found.outputs)
            changed = {o: n for o, n in zip(region.roots, made, strict=True) if o is not n}
            if not _reads(changed.values(), changed, region.leaves):
                replaced |= changed
    return with_roots(whole, replaced, products) if replaced else graph


def _reads(roots: Iterable[Node], others: Collection[Node], leaves: Nodes) -> bool:
    """Whether roots are computed from others, between them and the leaves."""
    seen: dict[Node, None] = {}
    for root in roots:
        bottom_up(root, seen, lambda _: None, lambda n: _unless(n in leaves, n))
    return any(n in seen for n in others if n not in leaves)


def with_roots(graph: Graph, replaced: Mapping[Node, Node], products: Collection[Node]) -> Graph:
    """The graph with other nodes in place of some, which may themselves read others of these."""
    memo: dict[Node, Node] = {}

    def below(n: Node) -> Nodes:
        return (replaced[n],) if n in replaced else n.args

    def compute(n: Node) -> Node:
        if n in replaced:
            return memo[replaced[n]]
        args = tuple(memo[a] for a in n.args)
        return n if args == n.args else make(n.op, *args)

    outputs = tuple(bottom_up(n, memo, compute, below) for n in graph.outputs)
    left = {memo[p] for p in products if p in memo and p not in replaced}
    return as_quotients(rewritten(graph, memo, outputs), left)
