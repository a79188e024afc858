"""The gradient of a view: for each element of the source, the sum over the places that read it.

view{[6,3] -> (i0 + i1)}(x)      # of x: sum, over i1, of view{[8,3] -> (i0 - i1, i1) if ...}(g)

An index map is solved for the output's coordinates, an axis of the source at a time. What a source
coordinate decides is a term of it; coordinates that it leaves free are summed over; what must hold,
divisibility of strides among it, is the mask of the view that is summed. Only where an index is no
sum of coordinates, as beyond a clamped edge, the rest is scattered.
"""

import itertools
import math
from dataclasses import dataclass, field

from weft.core.node import Node, substitute
from weft.core.types import Symbolic
from weft.scalar import ops as scalar
from weft.scalar.affine import Linear, from_linear, linear, plus
from weft.scalar.index import TRUE, inside, narrow, simplify
from weft.scalar.intervals import Ranges
from weft.scalar.monoid import SUM
from weft.scalar.ops import Axis, apply, axis, constant, function_of, value_of
from weft.scalar.sizes import hint
from weft.tensor.build import (
    Tensor,
    all_of,
    full,
    index_of,
    permute,
    reduce,
    reshape,
    scatter,
    within,
)
from weft.tensor.ops import Map, Shape, View, box, moved, position
from weft.tensor.rules_view import axes_of, viewed

Nodes = tuple[Node, ...]


@dataclass
class Solver:
    """Solves index terms for the axes of a view's output, whose lengths are `extents`.

    `values` has what is known of them, in the source's coordinates and in `free` ones, whose
    lengths these are; `conditions` hold where the source's element is read at all.
    """

    extents: dict[Node, int]
    first: int  # the free coordinates are positions from this one on
    values: dict[Node, Node] = field(default_factory=dict[Node, Node])
    free: list[int] = field(default_factory=list[int])
    conditions: list[Node] = field(default_factory=list[Node])

    def fresh(self, extent: int) -> Node:
        """A free coordinate."""
        self.free.append(extent)
        return position(self.first + len(self.free) - 1)

    def unknown(self, *terms: Node) -> list[Node]:
        """The output's axes in terms, one for each time that it stands in another term."""
        return [a for t in terms for a in axes_of(t) if a in self.extents]

    def known(self, term: Node) -> Node:
        """The term, with what is known of axes."""
        return substitute((term,), self.values)[0]

    def solve(self, form: Linear, value: Node, split: bool = False) -> bool:
        """form = value, for the axes in it; False if it is no sum of them.

        With `split`, their quotients and rests by numbers may stand in it too.
        """
        atoms = {a: k for a, k in form[0].items() if self.unknown(a)}
        axes = self.unknown(*atoms)
        if len(axes) != len(set(axes)) or not all(self._extent(a, split) for a in atoms):
            return False
        others = {a: k for a, k in form[0].items() if a not in atoms}
        rest = plus(linear(value), (others, form[1]), -1)
        terms = [(k, self._extent(a, split), a) for a, k in atoms.items()]
        for k, n, _ in terms:
            rest = plus(rest, linear(constant(n - 1)), -k) if k < 0 else rest  # from its end
        terms.sort(key=lambda t: (-abs(t[0]), -hint(t[1])))
        while not _decides(terms):
            chosen = min(terms, key=lambda t: (hint(t[1]), abs(t[0])))
            terms.remove(chosen)
            place = self.fresh(chosen[1])
            self._found(chosen, place)
            rest = plus(rest, linear(place), -abs(chosen[0]))
        left = from_linear(*rest)
        for k, n, a in terms:
            by = constant(abs(k))
            self._found((k, n, a), apply("floordiv", left, by))
            left = apply("floormod", left, by)
        self.conditions.append(apply("eq", left, constant(0)))
        return True

    def _found(self, term: tuple[int, int, Node], value: Node) -> None:
        """What an atom is, which counts from its end where its coefficient is negative."""
        k, n, atom = term
        self.conditions.append(within(value, n))
        value = apply("subtract", constant(n - 1), value) if k < 0 else value
        if not isinstance(atom.op, Axis):
            name, (atom, by) = function_of(atom), atom.args
            if name == "floordiv":  # atom // by = value
                value, rest = value, self.fresh(value_of(by))  # type: ignore[arg-type]
            else:  # atom % by = value
                value, rest = self.fresh(-(-self.extents[atom] // value_of(by))), value  # type: ignore[operator]
            value = apply("add", apply("multiply", value, by), rest)
            self.conditions.append(within(value, self.extents[atom]))
        self.values[atom] = value

    def _extent(self, atom: Node, split: bool) -> int:
        """The length of an axis, or of its quotient or rest by a number; 0 for another term."""
        if isinstance(atom.op, Axis):
            return self.extents[atom]
        name, of = function_of(atom), atom.args[0]
        if not split or name not in ("floordiv", "floormod") or of not in self.extents:
            return 0
        by, n = value_of(atom.args[1]), self.extents[of]
        if not isinstance(by, int) or isinstance(n, Symbolic):
            return 0
        return -(-n // by) if name == "floordiv" else by


def _decides(terms: list[tuple[int, int, Node]]) -> bool:
    """Whether a sum of these terms, by falling coefficient, has each value for one choice only."""
    if len(terms) < 2:
        return True
    if any(isinstance(n, Symbolic) for _, n, _ in terms):
        return False
    spans = [abs(k) * (n - 1) for k, n, _ in terms]
    return all(abs(k) > sum(spans[i + 1 :]) for i, (k, _, _) in enumerate(terms[:-1]))


def gather_back(g: Tensor, op: View, shape: Shape) -> Tensor:
    """The gradient of a view's source, which has that shape, of g, the view's own."""
    if 0 in op.shape or 0 in shape:
        return full(shape, 0, g.dtype)
    if op.valid is None and shape and op == _reshaping(shape, op.shape):
        return reshape(g, shape)
    # The output's axes are renamed: i0, i1, ... are the source's here.
    names = tuple(axis(f"o{i}") for i in range(len(op.shape)))
    *index, valid = moved((*op.index, op.valid or TRUE), names)
    ranges = narrow(valid, box(op.shape, "o"))
    index = tuple(simplify(t, ranges) for t in index)
    solver = Solver(dict(zip(names, op.shape, strict=True)), len(shape))
    left = _solve_all(solver, index, shape, ranges)
    scattered = list(dict.fromkeys(solver.unknown(*(solver.known(index[a]) for a in left))))
    for n in names:
        if n not in solver.values and n not in scattered:
            solver.values[n] = solver.fresh(solver.extents[n])
    for n in scattered:
        solver.values[n] = solver.fresh(solver.extents[n])
    at = substitute(names, solver.values)
    mask = all_of([*solver.conditions, solver.known(valid)])
    if left:
        flat = _flat([solver.known(index[a]) for a in left], [shape[a] for a in left])
        return _scattered(_read(g, _box(shape, left, solver), at, mask), shape, left, flat)
    whole = _read(g, (*shape, *solver.free), at, mask)
    return reduce(SUM, whole, range(len(shape), whole.rank))


def _reshaping(shape: Shape, to: Shape) -> object:
    """The view that reshapes."""
    if math.prod(shape) != math.prod(to):
        return None
    return reshape(index_of(shape, position(0)), to).node.op


def _box(shape: Shape, left: list[int], solver: Solver) -> Shape:
    return (*(1 if a in left else n for a, n in enumerate(shape)), *solver.free)


def _flat(terms: list[Node], extents: list[int]) -> Node:
    """The row-major position of coordinates."""
    total: Node = constant(0)
    for term, n in zip(terms, extents, strict=True):
        total = apply("add", apply("multiply", total, constant(n)), term)
    return total


def _solve_all(solver: Solver, index: Nodes, shape: Shape, ranges: Ranges) -> list[int]:
    """Solves what it can; the axes of the source that are left."""
    left: list[int] = []
    for a in sorted(range(len(shape)), key=lambda a: len(axes_of(index[a]))):
        term = simplify(solver.known(index[a]), ranges)
        if not solver.unknown(term):
            solver.conditions.append(apply("eq", term, position(a)))
        elif not solver.solve(linear(term), position(a)):
            left.append(a)
    for group in _groups(solver, {a: solver.known(index[a]) for a in sorted(left)}):
        # together they may be a sum, as of a reshape
        extents = [shape[a] for a in group]
        flat = _flat([solver.known(index[a]) for a in group], extents)
        place = _flat([position(a) for a in group], extents)
        if solver.solve(linear(simplify(flat, ranges)), place):
            left = [a for a in left if a not in group]
    for a in list(left):
        term = solver.known(index[a])
        if solver.unknown(term) and solver.solve(linear(term), position(a), split=True):
            left.remove(a)
    return sorted(left)


def _groups(solver: Solver, terms: dict[int, Node]) -> list[list[int]]:
    """The axes of the source, those together that read axes of the output together."""
    groups: list[list[int]] = []
    for a, term in terms.items():
        axes = set(solver.unknown(term))
        joined = [g for g in groups if axes & set(solver.unknown(*(terms[b] for b in g)))]
        groups = [g for g in groups if g not in joined]
        groups.append(sorted([a, *itertools.chain(*joined)]))
    return groups


def _read(x: Tensor, shape: Shape, index: Nodes, valid: Node) -> Tensor:
    """x at an index, 0 where the mask is off; of a product of views, each factor there."""
    op, args = x.node.op, [Tensor(a) for a in x.node.args]
    product = isinstance(op, Map) and op.function is scalar.multiply
    if product and all(isinstance(f.node.op, View) or not f.rank for f in args):
        there = [_viewed(f, shape, index, valid) if f.rank else (f, True) for f in args]
        # one factor that is 0 is enough, where the other one can be read without the mask
        masks = [not inside_ for _, inside_ in there]
        masks[0] |= valid is not TRUE and not any(masks)
        parts = [
            _viewed(f, shape, index, valid if masked else TRUE)[0] if f.rank else f
            for f, masked in zip(args, masks, strict=True)
        ]
        return scalar.multiply(*parts)
    return _viewed(x, shape, index, valid)[0]


def _viewed(x: Tensor, shape: Shape, index: Nodes, valid: Node) -> tuple[Tensor, bool]:
    """x at an index, 0 where the mask is off, and whether it could be read without the mask."""
    op = x.node.op
    if not isinstance(op, View) or (op.valid is not None and op.fill != 0):
        terms, source = index, x.node
    else:
        *terms, mask = moved((*op.index, op.valid or TRUE), index)
        source, valid = x.node.args[0], apply("and", valid, mask)
    ranges = box(shape)
    bounds = zip(terms, source.type.shape, strict=True)
    reached = all(inside(simplify(t, ranges), n, ranges) for t, n in bounds)
    return Tensor(viewed(source, shape, tuple(terms), valid, 0)), reached


def _scattered(x: Tensor, shape: Shape, left: list[int], flat: Node) -> Tensor:
    """x summed into the places of the axes that are left, at row-major positions `flat`."""
    rank, kept = len(shape), [a for a in range(len(shape)) if a not in left]
    places = math.prod(shape[a] for a in left)
    inside_ = apply("maximum", apply("minimum", flat, constant(places - 1)), constant(0))
    lines = (*(shape[a] for a in kept), math.prod(x.shape[rank:]))
    index = reshape(index_of(x.shape, inside_), lines)
    base = full((*lines[:-1], places), 0, x.dtype)
    out = scatter(SUM, base, len(kept), index, reshape(x, lines))
    out = reshape(out, (*lines[:-1], *(shape[a] for a in left)))
    order = [*kept, *left]
    return permute(out, [order.index(a) for a in range(rank)])
