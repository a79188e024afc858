"""The sizes that a program for any size is scheduled for: large ones, whichever are met first.

thought_large(graph)                    # of size s0: 2..65536 near 2 the same near 1024
What is fast at large sizes is hardly slow at small ones, where a call takes no time to speak of;
but what is chosen for small ones takes up to ten times as long at large ones.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial

from weft.core.node import Graph, Node
from weft.core.types import TensorType
from weft.scalar.nest import Block, Program
from weft.scalar.ops import Symbol
from weft.scalar.resize import hinted, hints_of, sizes_of, with_hints
from weft.scalar.sizes import Size, at, hint
from weft.targets.gpu import GPU
from weft.targets.machine import Machine
from weft.tile.analysis.access import Contraction, span
from weft.tile.price.cost import kernel_time_us
from weft.tile.price.sizes import good_ranges, nests_of

# Sizes of a GPU's programs are thought at least as large where kernels are merged: what one block
# does in no time at the first sizes would be slow at others.
MANY = 4096
LARGE = 1024, 256, 64, 32  # hints: the first with which no input or output has more than
ELEMENTS = 1 << 20  # elements
SMALL = 1 << 15  # elements of inputs and outputs that take no time to speak of


def price_for(
    target: Machine, sizes: Collection[Node], many: int = MANY
) -> Callable[[Block], float]:
    """The price in us of a kernel's body at the hints of sizes, on a GPU at many."""
    return hinted(partial(kernel_time_us, target=target), sizes, many * isinstance(target, GPU))


def thought_large(graph: Graph, kept: Collection[str] = ()) -> Graph:
    """The graph with larger hints, but for symbols of labels `kept`."""
    found = [(n, s) for n in sizes_of(graph).values() if isinstance(s := n.op, Symbol)]
    memory = {n.type for n in (*graph.inputs, *graph.outputs)}
    shapes = {t for n in graph.nodes() if isinstance(t := n.type, TensorType)}
    few = max(hint(t.size) for t in memory if isinstance(t, TensorType)) <= SMALL
    for least in LARGE if found and few else ():
        hints = {n: min(max(s.hint, -(-least // s.divisor) * s.divisor), s.high) for n, s in found}
        hints |= {n: s.hint for n, s in found if s.label in kept}
        sizes = {t: at(t.size, hints) for t in shapes}  # sizes that depend on each other may clash
        if min(sizes.values()) > 0 and max(sizes.get(t, 0) for t in memory) <= ELEMENTS:
            return with_hints(graph, {s.label: hints[n] for n, s in found})
    return graph


def ranges_around(
    program: Program, met: Mapping[str, int], few: Collection[str] | None, target: Machine
) -> tuple[dict[Size, tuple[int, int]], Collection[str] | None]:
    """Good ranges around sizes that were met, by label; and which sizes are few in these, so that
    the program has to be one for few: None where one for many serves all.
    """
    if few is None:
        return {}, None
    thought = hints_of(program)
    larger = {label for label, n in thought.items() if n != met[label]}
    nests = [n for n, _ in nests_of(program.kernels)] if larger else []
    ending = [n.rows if isinstance(n, Contraction) else n for n in nests]  # rows, and long sums
    rows = {*sizes_of(tuple(map(span, ending)))}
    first = with_hints(program, {label: met[label] for label in larger & rows})
    ranges = with_hints(tuple(good_ranges(first.kernels, target).items()), thought)
    beyond = [n for n, (low, high) in ranges if not low <= hint(n) <= high]
    if beyond:
        return {}, frozenset(few).union(sizes_of(tuple(beyond)))
    return dict(ranges), few if ranges or not few else None
