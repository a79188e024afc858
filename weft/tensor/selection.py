"""Selection as nests: the element of a rank among those of a row, without a sort.

ways = selections(node, buffers, out)       # {"digits": nest, "ranks": nest}: of each row a place

Integers in the order of the values (`order`) are kept beside each row, and the one of that rank is
found from its highest digit on: of three candidates each, one pass counts, in lanes, how many are
not above. It takes half as many passes as an integer has bits, whatever the values are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.node import Node, make, op_of
from weft.core.types import TensorType, boolean, i32, i64
from weft.scalar.monoid import MIN, SUM
from weft.scalar.nest import Block, Buffer, Fold, Load, Local, Store, Update
from weft.scalar.ops import apply, apply_all, axis, cast, constant
from weft.scalar.sizes import is_short
from weft.scalar.structure import renumber
from weft.tensor.bits import order
from weft.tensor.nests import around, loop
from weft.tensor.ops import Select, box
from weft.tensor.terms import Terms

DIGIT = 2  # bits that a pass finds


@dataclass(frozen=True)
class Chosen:
    """A row of integers `keys`, from `least` on, and the search by digits of so many bits."""

    keys: Buffer
    bits: int
    least: int

    @property
    def answer(self) -> Buffer:
        return Buffer("answer", TensorType(self.keys.type.dtype, (1,)), "local")

    @property
    def found(self) -> Node:
        return make(Load(self.answer), constant(0))

    def search(self, element: Node, rank: Node) -> Block:
        """Statements that leave the integer of that rank, from 0 on, in `answer`."""
        dtype, turn, steps = self.keys.type.dtype, axis("turn"), self.bits // DIGIT
        (n,), counted, key = self.keys.type.shape, rank.type.dtype, make(Load(self.keys), element)
        left = apply("subtract", constant(steps - 1), turn)
        one, shift = constant(1, dtype), cast(apply("multiply", left, constant(DIGIT)), dtype)
        parts = [constant(part, dtype) for part in range(1, 1 << DIGIT)]
        ends = [apply("subtract", apply("shift_left", part, shift), one) for part in parts]
        folds = tuple(Fold((f"acc{i}",), SUM, (counted,)) for i in range(len(parts)))
        within = (apply("le", key, apply("add", self.found, end)) for end in ends)
        updates = [
            Update(f, (cast(inside, counted),)) for f, inside in zip(folds, within, strict=True)
        ]
        digit = apply_all("add", [cast(apply("le", f.accs[0], rank), dtype) for f in folds])
        more = apply("add", self.found, apply("shift_left", digit, shift))
        zero = (constant(0),)
        return (
            Local(self.answer),
            Store(self.answer, zero, constant(self.least, dtype)),
            loop(
                turn,
                steps,
                loop(element, n, *updates, role="reduce", folds=folds),
                Store(self.answer, zero, more),
                role="scan",
            ),
        )

    def ranks(self, element: Node, rank: Node) -> tuple[Block, Node]:
        """Statements that count, for each element, those before it; and whether it is of the rank.

        These are n^2 comparisons, of which short rows have few.
        """
        (n,), counted, other = self.keys.type.shape, rank.type.dtype, axis("other")
        named = Buffer("named", TensorType(boolean, (n,)), "local")
        mine, its = (make(Load(self.keys), a) for a in (element, other))
        below, within = (Fold((f"acc{i}",), SUM, (counted,)) for i in (0, 1))
        updates = [
            Update(fold, (cast(apply(how, its, mine), counted),))
            for fold, how in ((below, "lt"), (within, "le"))
        ]
        count = loop(other, n, *updates, role="reduce", folds=(below, within))
        here = apply("and", apply("le", below.accs[0], rank), apply("lt", rank, within.accs[0]))
        body = loop(element, n, count, Store(named, (element,), here))
        return (Local(named), body), make(Load(named), element)


def chosen(key: tuple[Node, int, int], extent: int, signed: bool) -> tuple[Chosen, Node]:
    """The search among integers, of the bits that count of what `order` gives; and an integer."""
    value, low, bits = key
    value = apply("shift_right", value, constant(low, value.type.dtype)) if low else value
    bits += bits % DIGIT
    keys = Buffer("keys", TensorType(value.type.dtype, (extent,)), "local")
    return Chosen(keys, bits, -(1 << (bits - 1)) if signed else 0), value


def selections(node: Node, buffers: Mapping[Node, Buffer], out: Buffer) -> dict[str, Block]:
    """The nests of a selection by each way: by the digits of the answer, and by every rank."""
    (key, rank), along = node.args, op_of(node, Select).axis
    shape, ranges = key.type.shape, box(key.type.shape, "o")
    index, n = tuple(ranges), shape[along]
    element, counted = index[along], i32 if is_short(n) else i64
    first = tuple(constant(0) if a is element else a for a in index)
    terms = Terms(buffers, ranges)
    bits = order(terms.of(key, index), key.type.dtype, False)
    search, value = chosen(bits, n, key.type.dtype.kind in ("float", "int"))
    wanted = apply("maximum", terms.of(rank, first), constant(0))
    wanted = cast(apply("minimum", wanted, constant(n - 1)), counted)
    rows = [(a, extent) for a, extent in zip(index, shape, strict=True) if a is not element]
    fill = loop(element, n, Store(search.keys, (element,), value))

    def nest(steps: Block, named: Node) -> Block:
        fold = Fold(("acc0",), MIN, (counted,))
        place, last = cast(element, counted), cast(constant(n - 1), counted)
        update = Update(fold, (apply("where", named, place, last),))
        found = loop(element, n, update, role="reduce", folds=(fold,))
        store = Store(out, first, cast(fold.accs[0], i64))
        return renumber(around(rows, (Local(search.keys), fill, *steps, found, store)))

    same = apply("eq", make(Load(search.keys), element), search.found)
    steps, named = search.ranks(element, wanted)
    return {"digits": nest(search.search(element, wanted), same), "ranks": nest(steps, named)}
