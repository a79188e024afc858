"""Terms, loads and stores of the kernel level as C expressions; emit/c.py writes what is around.

in0 = load{16} x[a0 * 2048]       # load_f32x16(x + a0 * 2048)
v0 = multiply(in0, in0)           # mul_f32x16(in0, in0)
"""

from functools import lru_cache

from weft.core.node import Node, op_of, postorder
from weft.core.types import DType, ScalarType, boolean, f32, i32, i64
from weft.emit.spelling import Names, c_type, function_name, literal, register, suffix
from weft.kernel import ops as vectors
from weft.kernel.ops import VectorLoad, VectorStore
from weft.scalar.affine import function_of, has_symbol
from weft.scalar.blocks import nodes
from weft.scalar.intervals import Interval, bounds
from weft.scalar.nest import Acc, Block, Buffer, Load, Running, Store, free_variables, walk
from weft.scalar.ops import (
    CASTS,
    Apply,
    Axis,
    Constant,
    Symbol,
    add,
    constant,
    dot_bf16,
    is_index,
    value_of,
)
from weft.scalar.sizes import Extent, Size

Access = VectorLoad | VectorStore
SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "floordiv": "/", "floormod": "%"}


@lru_cache(maxsize=1 << 14)
def inline(term: Node) -> bool:
    """Scalar index arithmetic is written where it is used."""
    return isinstance(term.op, Apply) and term.type == ScalarType(i64) and is_index(term)


def is_dot(term: Node) -> bool:
    """A product of words: one instruction with the sum that it is added to."""
    return isinstance(term.op, Apply) and term.op.function is dot_bf16


def narrows(term: Node) -> bool:
    """A rounding of f32 to 16 bits, which a store does itself."""
    dtype = term.type.dtype
    cast = isinstance(term.op, Apply) and term.op.function is CASTS.get(dtype)
    return cast and register(dtype) is f32 is not dtype and term.args[0].type.dtype is f32


@lru_cache(maxsize=1 << 14)
def is_count(term: Node) -> bool:
    """A quotient of sizes, or a term with one: it has a name, and loops compute it no more."""
    sizes = inline(term) and has_symbol(term) and not free_variables(term)
    parts = postorder(term) if sizes else ()
    by = [n.args[1] for n in parts if function_of(n) in ("floordiv", "floormod")]
    return bool(by) and all(bounds(n, {})[0] > 0 for n in by)


def unnamed(term: Node) -> bool:
    return (inline(term) and not is_count(term)) or is_dot(term) or narrows(term)


def bare(term: Node) -> bool:
    """Whether a term of a GPU kernel needs no variable: it is written where it is used."""
    lane = isinstance(term.op, vectors.Extract) and register(term.type.dtype) is term.type.dtype
    return lane or isinstance(term.op, vectors.Pack)


def packed(body: Block) -> set[Node]:
    """The elements that are only read to be packed in a vector: they need no variable either."""
    uses = [(a, n.op) for n in nodes(body) for a in n.args]
    reads = {a for a, op in uses if isinstance(a.op, Load) and isinstance(op, vectors.Pack)}
    reads -= {a for a, op in uses if not isinstance(op, vectors.Pack)}
    reads -= {t for s in walk(body) for t in s.terms()}
    return {a for a in reads if register(a.type.dtype).is_float and not a.op.masked}  # type: ignore[attr-defined]


def near_places(term: Node) -> tuple[Node, Node] | None:
    """Where a gather starts, and i32 places from there on, where its index only widens these."""
    op = term.op
    if not isinstance(op, VectorLoad) or op != VectorLoad(op.buffer, op.lanes, stride=0):
        return None
    start, wide = constant(0), term.args[0]
    if function_of(wide) == "add" and 1 in (lanes := [a.type.lanes for a in wide.args]):
        start, wide = wide.args if lanes[0] == 1 else wide.args[::-1]
    narrow = function_of(wide) == "i64" and wide.args[0].type.dtype is i32
    return (start, wide.args[0]) if narrow and wide.type.lanes > 1 else None


def only_widened(body: Block) -> set[Node]:
    """Vectors of i64 that gathers of near places do without: they need no variable."""
    users: dict[Node, list[Node]] = {}
    for a, user in [(a, n) for n in nodes(body) for a in n.args]:
        users.setdefault(a, []).append(user)
    rest = {t for s in walk(body) for t in s.terms()}
    found = {a for a, used in users.items() if a.type.lanes > 1 and all(map(near_places, used))}
    found -= rest
    inner = {a for i in found for a in i.args if function_of(a) == "i64"}
    return found | {a for a in inner - rest if found.issuperset(users[a])}


class Terms:
    """Terms as C, given the names of those that have one."""

    def __init__(self) -> None:
        self.spelt = Names()
        self.names: dict[Node, str] = {}
        self.ranges: dict[Node, Interval] = {}  # of the axes in scope

    def use(self, name: str) -> str:
        """A name as it is seen at this place."""
        return name

    def variable(self, label: str) -> str:
        """The name of an axis or an accumulator, which may be called as a buffer is."""
        return self.spelt.of(label, "variable")

    # What languages spell in ways of their own.

    def type_of(self, type_: ScalarType) -> str:
        return c_type(type_)

    def literal(self, value: float, dtype: DType) -> str:
        return literal(value, dtype)

    def offset(self, buffer: Buffer, where: Node) -> str:
        """Elements from a buffer's first one to where an index leads."""
        return self.index(where)

    def pointer(self, buffer: Buffer, where: Node) -> str:
        offset = self.offset(buffer, where)
        name = self.use(self.spelt.of(buffer.name))
        return name if offset == "0" else f"{name} + {offset}"

    def store(self, stmt: Store | VectorStore) -> str:
        exact = stmt.value.args[0] if narrows(stmt.value) else stmt.value
        if isinstance(stmt, Store):
            value, offset = self.atom(exact), self.offset(stmt.buffer, stmt.index[0])
            text = self._element_store(stmt.buffer, offset, value)
            if stmt.combines:
                text = f"{stmt.how}({self.pointer(stmt.buffer, stmt.index[0])}, {value});"
            return text if stmt.mask is None else f"if ({self.atom(stmt.mask)}) {text}"
        dtype = stmt.buffer.type.dtype.word
        value = self.wide(exact, ScalarType(dtype, stmt.lanes))
        if stmt.mask is not None:
            return self._masked_store(stmt, stmt.mask, value)
        some, counted = ("", "") if stmt.count is None else ("_n", f", {self.index(stmt.count)}")
        word, at = self.lanes(stmt, stmt.index, "store", "scatter")
        if stmt.how == "stream" and word == "store" and not counted:
            word = "stream" if stmt.when is None else "stream_if"
            at = at if stmt.when is None else f"{self.atom(stmt.when)}, {at}"
        return f"{word}{some}_{dtype}x{stmt.lanes}({at}, {value}{counted});"

    def extent(self, extent: Extent) -> str:
        return self.index(extent.term) if isinstance(extent, Size) else str(extent)

    def load(self, term: Node) -> str:
        op = term.op
        if not isinstance(op, VectorLoad):
            return self._scalar_load(term)
        if found := near_places(term):
            at = f"{self.pointer(op.buffer, found[0])}, {self.atom(found[1])}"
            return f"gather_near_{op.buffer.type.dtype.word}x{op.lanes}({at})"
        word, at = self.lanes(op, term.args[0], "load", "gather")
        some, rest = ("_ahead", f", {self.extent(op.ahead)}") if op.ahead else ("", "")
        if op.counted:
            some, rest = "_n", f", {self.index(term.args[1])}"
        elif op.masked:
            condition, fill = self.atom(term.args[1]), self.wide(term.args[2], term.type)
            some, rest = "_where", f", {condition}, {fill}"
        return f"{word}{some}_{op.buffer.type.dtype.word}x{op.lanes}({at}{rest})"

    def lanes(self, part: Access, index: Node, near: str, far: str) -> tuple[str, str]:
        """How the headers call an access of lanes, `near` or `far` apart; and where they are."""
        if part.stride == 0:
            return far, f"{self.use(self.spelt.of(part.buffer.name))}, {self.atom(index)}"
        at = self.pointer(part.buffer, index)
        return (near, at) if part.stride == 1 else (f"{far}_stride", f"{at}, {part.stride}")

    def _masked_store(self, stmt: VectorStore, mask: Node, value: str) -> str:
        """Lane by lane: memory of the others is not touched."""
        where = self.wide(mask, ScalarType(boolean, stmt.lanes))
        end = stmt.lanes if stmt.count is None else self.index(stmt.count)
        index = self.atom(stmt.index) if stmt.stride == 0 else self.index(stmt.index)
        at = f"{index} + lane * {stmt.stride}" if stmt.stride else f"({index})[lane]"
        one = self._element_store(stmt.buffer, at, f"({value})[lane]")
        return f"for (i64 lane = 0; lane < {end}; lane++) if (({where})[lane]) {one}"

    def _element_store(self, buffer: Buffer, offset: str, value: str) -> str:
        dtype, name = buffer.type.dtype.word, self.use(self.spelt.of(buffer.name))
        special = dtype is boolean or register(dtype) is not dtype
        at = f"{name} + {offset}"
        return f"store_{dtype}({at}, {value});" if special else f"{name}[{offset}] = {value};"

    def _scalar_load(self, term: Node) -> str:
        op = op_of(term, Load)
        dtype, name = op.buffer.type.dtype.word, self.use(self.spelt.of(op.buffer.name))
        offset = self.offset(op.buffer, term.args[0])
        special = dtype is boolean or register(dtype) is not dtype
        text = f"load_{dtype}({name} + {offset})" if special else f"{name}[{offset}]"
        if not op.masked:
            return text
        return f"{self.atom(term.args[1])} ? {text} : {self.atom(term.args[2])}"

    # ---- terms

    def atom(self, term: Node) -> str:
        """A term that has a name or is a literal, as C; index arithmetic inline."""
        if term in self.names:
            return self.use(self.names[term])
        if isinstance(term.op, Constant):
            return self.literal(term.op.value, register(term.type.dtype))
        if isinstance(term.op, Acc | Running | Axis | Symbol):
            return self.use(self.variable(term.op.label))
        return self.index(term) if inline(term) else f"({self.value(term)})"

    def wide(self, term: Node, like: ScalarType) -> str:
        """The term with as many lanes as wanted."""
        text = self.atom(term)
        if term.type.lanes == like.lanes:
            return text
        return f"splat_{suffix(like.dtype, like.lanes)}({text})"

    def value(self, term: Node) -> str:
        match term.op:
            case Load() | VectorLoad():
                return self.load(term)
            case vectors.Lanes(lanes=lanes):
                return f"iota_i64x{lanes}(0)"
            case vectors.Splat():
                return self.wide(term.args[0], term.type)
            case vectors.Shuffle() | vectors.Exchange():
                values, lanes = (term.args * 2)[:2], range(term.type.lanes)
                beyond = len(lanes) if len(term.args) > 1 else 0  # to lanes of the second
                order = (term.op.source(i) + beyond * bool(i & term.op.distance) for i in lanes)
                of = ", ".join([*map(self.atom, values), *map(str, order)])
                return f"__builtin_shufflevector({of})"
            case vectors.Permute():
                name = f"permute_{suffix(term.type.dtype, term.type.lanes)}"
                return f"{name}({self.atom(term.args[0])}, {self.atom(term.args[1])})"
            case vectors.Pack():
                of = ", ".join(map(self.atom, term.args))
                return f"({suffix(term.type.dtype, term.type.lanes)}){{{of}}}"
            case vectors.Extract(lane=lane):
                return f"{self.atom(term.args[0])}[{lane}]"
            case Apply():
                return self.index(term) if inline(term) else self.apply(term)
            case _:
                return self.atom(term)

    def apply(self, term: Node) -> str:
        function = term.op.function  # type: ignore[attr-defined]
        lanes = term.type.lanes
        if function is add and is_dot(term.args[1]):
            name, words = self.apply(term.args[1]).split("(", 1)
            return f"add_{name}({self.wide(term.args[0], term.type)}, {words}"
        args = [self.wide(a, ScalarType(a.type.dtype, lanes)) for a in term.args]
        return function_name(function, [register(a.type.dtype) for a in term.args], lanes, args)

    def index(self, term: Node) -> str:
        """Scalar i64 arithmetic in infix C; / and % are C's where nothing is negative."""
        if term in self.names or not inline(term):
            return self.atom(term) if term.type.lanes == 1 else self.value(term)
        name = term.op.function.name  # type: ignore[attr-defined]
        divides = name in ("floordiv", "floormod")
        if name in SIGNS and not (divides and bounds(term.args[0], self.ranges)[0] < 0):
            a, b = (self._operand(x, name) for x in term.args)
            return f"{a} {SIGNS[name]} {b}".replace("+ -", "- ")
        by = int(value_of(term.args[1]) or 0) if divides else 0
        if by > 0 and not by & (by - 1):  # a shift and a mask floor negative numbers too
            sign = f">> {by.bit_length() - 1}" if name == "floordiv" else f"& {by - 1}"
            return f"({self._operand(term.args[0], name)} {sign})"
        args = [self.index(a) for a in term.args]
        dtypes = [a.type.dtype for a in term.args]
        return function_name(term.op.function, dtypes, 1, args)  # type: ignore[attr-defined]

    def _operand(self, term: Node, within: str) -> str:
        text = self.index(term)
        if term in self.names or not inline(term):
            return text
        inner = term.op.function.name  # type: ignore[attr-defined]
        plain = inner == "multiply" and within in ("add", "subtract")
        return text if plain or (within == "add" and inner == "add") else f"({text})"
