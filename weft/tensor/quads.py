"""join_bytes: sums products of bytes four at a time, from words that hold four neighbours along K.

before  v = map{multiply}(view(i32(x)), view(subtract(i32(c), 8)))     x: i8[M,K], c: u8[N,K]
        reduce{sum, axes=(2,)}(v)
after   p = map{pack_bytes}(x's parts): i32[M,K/4], q from c
        s = reduce{sum, axes=(2,)}(map{dot_bytes}(view(q), view(p)))
        subtract(s, multiply(8, view(reduce{sum, axes=(1,)}(map{dot_bytes}(ones, p)))))

For CPUs that multiply and add four bytes at once (vpdpbusd), the first ones without a sign: of two
factors with signs, the larger one gets 128 added, by its highest bit. What is added to bytes leaves
the sum: sum (u + a) s = sum u s + a sum s. All is exact, modulo 2**32 as before.

A sum over halves that are computed in two ways, as those of bytes of two codes are, becomes a sum
of both where few rows read them; where many do, words of one half or the other go into panels.
Bits that all elements have in common are taken from a word at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

from weft.core.node import Graph, Node, make, postorder
from weft.core.rules import function_name, literal_value
from weft.core.types import Symbolic, i8, i16, i32, u8
from weft.scalar.affine import function_of, linear
from weft.scalar.index import FALSE, TRUE, simplify
from weft.scalar.monoid import SUM
from weft.scalar.ops import (
    CASTS,
    add,
    bitand,
    bitxor,
    constant,
    dot_bytes,
    multiply,
    negate,
    pack_bytes,
    shift_right,
    value_of,
)
from weft.scalar.sizes import hint
from weft.tensor.build import Tensor, affine, along
from weft.tensor.ops import Index, Input, Map, Reduce, Scalar, View, box, moved, position, positions
from weft.tensor.rules import simplify as simplified
from weft.tensor.rules_view import axes_of, scalar, viewed
from weft.tensor.words import REUSE, Read, Words, parts, read_of

SHORT = 16  # words of a group, whose sum is one of many: what is added to bytes stays in it
ONES = scalar(0x01010101, i32)
SIGNS = scalar(0x80808080 - (1 << 32), i32)


def join_bytes(graph: Graph) -> Graph:
    """Every sum of products of bytes by words, where these lie in memory or are read often."""
    joined = graph.rewrite(_joined)
    return graph if joined.outputs == graph.outputs else simplified(joined)


def _joined(node: Node) -> Node | None:
    if not isinstance(node.op, Reduce) or node.op.monoid is not SUM or len(node.op.axes) != 1:
        return None
    (product,), (r,) = node.args, node.op.axes
    if product.type.dtype is not i32 or isinstance(extent := product.type.shape[r], Symbolic):
        return None
    half = next(_ends(product, positions(product.type.rank), r), None)
    if half is not None and 2 * half == extent and _is_read_seldom(product):
        product = make(Map(add), *(_part(product, r, start, half) for start in (0, half)))
    found = [_products(p, r) for p in _terms(product)]
    sums = [s for s in found if s is not None]
    return _total(node, sums, r) if len(sums) == len(found) else None


# --- factors --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Factor:
    """A factor: a byte and `more`, an i32 over the shape of the words, or nothing.

    Where it is `turned`, its bytes are those of the source with the highest bit turned.
    """

    read: Read
    words: Words
    more: Node | None
    turned: bool = False

    @property
    def dtype(self) -> object:
        return self.read.source.type.dtype

    @property
    def size(self) -> int:
        return hint(self.read.source.type.size)

    def turn(self) -> "_Factor":
        """The same with bytes of the other sign: s + 128 without one, or u - 128 with one."""
        by, more = -128 if self.dtype is i8 else 128, self.more
        value = 0 if more is None else literal_value(more)
        if more is None or value is not None:
            more = scalar(by + (value or 0), i32)
        else:
            more = make(Map(add), more, scalar(by, i32))
        return _Factor(self.read, self.words, more, turned=True)

    def packed(self) -> Node:
        words = _packed(self.read.source, self.words)
        return make(Map(bitxor), words, SIGNS) if self.turned else words


def _factor(node: Node, r: int) -> _Factor | None:
    """A factor of bytes that neighbours along r make words of; None for any other."""
    read, more = read_of(node).through("i32"), None
    if read is not None and function_name(read.source) in ("add", "subtract"):
        byte, other = read.source.args
        shape = tuple(-(-n // 4) if a == r else n for a, n in enumerate(read.shape))
        more = viewed(other, shape, read.index) if other.type.rank else other
        if read.valid is not TRUE or _reads(other, read.index, position(r)):
            return None
        if function_name(read.source) == "subtract":
            value = literal_value(more)
            more = make(Map(negate), more) if value is None else scalar(-value, i32)
        read = Read(byte, read.shape, read.index, read.valid).through("i32")
    if read is None or read.source.type.dtype not in (i8, u8):
        return None
    words = read.words(r, 4)
    return words and _Factor(*_apart(read, words, r), more)


def _apart(read: Read, words: Words, r: int) -> tuple[Read, Words]:
    """A part of the bytes along r as a tensor of its own, whose words then follow each other."""
    d, extent = words.axis, 4 * words.shape[r]
    terms, start = linear(words.index[d])
    part = extent < read.source.type.shape[d] and terms == {position(r): 1}
    if not part or _is_near(read.source, words):
        return read, words
    source = along(Tensor(read.source), d, extent, affine({d: 1}, 4 * start)).node
    index = (*words.index[:d], position(r), *words.index[d + 1 :])
    return replace(read, source=source), replace(words, index=index)


def _reads(node: Node, index: tuple[Node, ...], axis: Node) -> bool:
    """Whether a tensor, read at an index, moves along an axis."""
    read = Read(node, (), index, TRUE).through("i32") if node.type.rank else None
    return node.type.rank > 0 and (read is None or axis in axes_of(*read.index, read.valid))


def _packed(source: Node, words: Words) -> Node:
    """The bytes of a tensor as words; what all bytes are masked or shifted by, words are."""
    if isinstance(view := source.op, View) and view.valid is not None and view.fill == 0:
        inner = Read(source.args[0], view.shape, view.index, view.valid)
        if (found := inner.words(words.axis, 4)) is not None:
            return found.read(_packed(inner.source, found))
    name, by = function_name(source), source.args[-1] if source.args else source
    if name == "where" and (first := _of_words(source, words)) is not None:
        return make(source.op, first, *(_packed(a, words) for a in source.args[1:]))
    if name in ("and", "or", "xor", "shift_right") and isinstance(by.op, Scalar):
        of, n = _packed(source.args[0], words), int(by.op.value) & 255
        if name != "shift_right":
            return make(source.op, of, _each(n))
        if source.type.dtype is u8 and n < 8:
            return make(Map(bitand), make(Map(shift_right), of, scalar(n, i32)), _each(255 >> n))
    return make(Map(pack_bytes), *parts(source, words))


def _of_words(choice: Node, words: Words) -> Node | None:
    """The condition of a choice between bytes, where all bytes of a word have the same."""
    condition, d = choice.args[0].op, words.axis
    if not isinstance(condition, Index) or any(a.type.rank == 0 for a in choice.args):
        return None
    shape = tuple(-(-n // 4) if a == d else n for a, n in enumerate(choice.type.shape))
    each = (
        moved(
            (condition.term,), (*positions(d), affine({d: 4}, i), *positions(len(shape))[d + 1 :])
        )
        for i in range(4)
    )
    terms = {simplify(t, box(shape)) for (t,) in each}
    return make(Index(shape, terms.pop())) if len(terms) == 1 else None


def _is_read_seldom(product: Node) -> bool:
    """Whether few products read the bytes of the larger factor: it has no panels."""
    sources = (n for n in postorder(product) if n.type.dtype in (i8, u8))
    return hint(product.type.size) < REUSE * max((hint(n.type.size) for n in sources), default=1)


def _each(byte: int) -> Node:
    """A word of four equal bytes."""
    word = byte * 0x01010101
    return scalar(word - (word >> 31 << 32), i32)


def _is_near(source: Node, words: Words) -> bool:
    """Whether words are in memory as they are."""
    if function_name(source) in ("and", "or", "xor", "shift_right"):
        return all(a.type.rank == 0 or _is_near(a, words) for a in source.args)
    whole = source.type.shape[words.axis] % words.each == 0
    return isinstance(source.op, Input) and whole and source.type.layout[words.axis] == 1


# --- sums -----------------------------------------------------------------------------------------


def _products(product: Node, r: int) -> tuple[_Factor, _Factor] | None:
    """The factors of a product, the second one of bytes with signs; None where no words pay."""
    found = [_factor(a, r) for a in product.args] if function_name(product) == "multiply" else []
    pair = sorted((f for f in found if f is not None), key=lambda f: f.size)
    if len(pair) != 2:
        return None
    small, large = pair
    if small.dtype is large.dtype:
        if large.words.valid is TRUE:
            large = large.turn()
        elif small.words.valid is TRUE:
            small = small.turn()
        else:
            return None
    size, padded = hint(product.type.size), product.type.shape[r] % 4 != 0
    if padded and small.more is not None and large.more is not None:
        return None
    for one, other in ((small, large), (large, small)):
        often = size >= REUSE * one.size
        if not often and (other.more is not None or not _is_near(one.read.source, one.words)):
            return None
        if padded and one.turned and other.more is not None:
            return None
    signed = (small.dtype is i8) != small.turned
    return (large, small) if signed else (small, large)


def _total(node: Node, sums: list[tuple[_Factor, _Factor]], r: int) -> Node:
    """The sum of all products, by words: what is added to bytes is summed by itself.

    Where few read the bytes of groups it is a term of each word.
    """
    shape = sums[0][0].words.shape
    few = hint(node.args[0].type.size) < REUSE * sum(max(f.size for f in pair) for pair in sums)
    inside = few and shape[r] <= SHORT
    dots, others = list[Node](), list[Node]()
    for plain, signed in sums:
        left, right = plain.packed(), signed.packed()
        dots.append(make(Map(dot_bytes), plain.words.read(left), signed.words.read(right)))
        alone = [make(Map(dot_bytes), *two) for two in ((left, ONES), (ONES, right))]
        for one, bytes_, more in ((plain, alone[0], signed.more), (signed, alone[1], plain.more)):
            if more is not None and inside:
                others.append(_by_word(one.words, bytes_, more))
            elif more is not None:
                found = _summed(one.words, bytes_, r)
                others.append(_scaled(found, more))
        if plain.more is not None and signed.more is not None:
            both = make(Map(multiply), plain.more, signed.more)
            n = 4 if inside else 4 * shape[r]
            full = shape if inside else (*shape[:r], 1, *shape[r + 1 :])
            others.append(_scaled(viewed(scalar(n, i32), full, ()), both))
    if inside:
        return make(node.op, _added(dots + others))
    return _added([make(node.op, _added(dots)), *others])


def _summed(words: Words, each: Node, r: int) -> Node:
    """The sum along r of what words are made into, which is computed once for all that read it."""
    used = axes_of(*words.index, words.valid)
    small = tuple(n if position(a) in used else 1 for a, n in enumerate(words.shape))
    total = make(Reduce(SUM, (r,)), viewed(each, small, words.index, words.valid))
    places = enumerate(total.type.shape)
    index = tuple(position(a) if n != 1 else constant(0) for a, n in places)
    return viewed(total, (*words.shape[:r], 1, *words.shape[r + 1 :]), index)


def _by_word(words: Words, each: Node, more: Node) -> Node:
    """What each word adds: an i16, at most 4 * 255, where it is stored."""
    value = literal_value(more)
    if value is not None and abs(value) <= 32:
        each, more = make(Map(multiply), each, more), scalar(1, i32)
    narrow = make(Map(CASTS[i16]), each)
    return _scaled(make(Map(CASTS[i32]), words.read(narrow)), more)


def _scaled(x: Node, more: Node) -> Node:
    if more.type.rank:
        more = viewed(more, x.type.shape, positions(more.type.rank))
    return make(Map(multiply), x, more)


def _added(terms: list[Node]) -> Node:
    return reduce(lambda a, b: make(Map(add), a, b), terms)


def _terms(node: Node) -> list[Node]:
    if function_name(node) == "add" and all(a.type.rank for a in node.args):
        return [t for a in node.args for t in _terms(a)]
    return [node]


# --- halves ---------------------------------------------------------------------------------------


def _ends(node: Node, index: tuple[Node, ...], r: int | None) -> Iterator[int]:
    """Where elements begin to be computed in another way, along axis r or along any."""
    if not node.type.dtype.is_integer:
        return
    if isinstance(view := node.op, View):
        yield from _ends(node.args[0], moved(view.index, index), r)
    elif isinstance(node.op, Map):
        condition = node.args[0].op
        if function_name(node) == "where" and isinstance(condition, Index):
            (term,) = moved((condition.term,), index)
            end = value_of(term.args[1]) if function_of(term) == "lt" else None
            if end is not None and (r is None or term.args[0] is position(r)):
                yield int(end)
        for a in node.args:
            if a.type.rank:
                yield from _ends(a, index, r)


def _part(node: Node, r: int, start: int, extent: int) -> Node:
    """`extent` elements of a tensor along axis r, with conditions decided that hold for all."""
    shape = tuple(extent if a == r else n for a, n in enumerate(node.type.shape))
    index = tuple(affine({a: 1}, start if a == r else 0) for a in range(len(shape)))
    return _inside(node, shape, index)


def _inside(node: Node, shape: tuple[int, ...], index: tuple[Node, ...]) -> Node:
    """node[index] over a shape, with views moved inside of what conditions decide."""
    if not node.type.rank or next(_ends(node, positions(node.type.rank), None), None) is None:
        return viewed(node, shape, index)
    if isinstance(view := node.op, View):
        (valid,) = moved((view.valid or TRUE,), index)
        if simplify(valid, box(shape)) is not TRUE:
            return viewed(node, shape, index)
        return _inside(node.args[0], shape, moved(view.index, index))
    condition = node.args[0].op
    if function_name(node) == "where" and isinstance(condition, Index):
        (term,) = moved((condition.term,), index)
        holds = simplify(term, box(shape))
        if holds in (TRUE, FALSE):
            return _inside(node.args[1 if holds is TRUE else 2], shape, index)
    args = (_inside(a, shape, index) if a.type.rank else a for a in node.args)
    return make(node.op, *args)
