"""Scalar terms as text: infix index arithmetic, calls, literals; the same for every level.

show_term(a0 * 64 + a1 - 1)             # a0 * 64 + a1 - 1
TermReader().expression(cursor)         # the term again, the very same node
add(x, constant(-1)) prints as x - 1; a true subtraction of a literal prints as subtract(x, 1).
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from weft.core.node import OPS, Node, op_of
from weft.core.text.cursor import Cursor, show_literal, show_name
from weft.core.text.level import CODECS, Codec, Ref, Scope, make_node, read_op, show_op
from weft.core.types import boolean, i64
from weft.scalar.monoid import LAST, MONOIDS, Monoid
from weft.scalar.nest import Acc, Buffer, Load, Running
from weft.scalar.ops import FUNCTIONS, Apply, Axis, Constant, Function, Symbol

COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
SUMS, PRODUCTS = {"add": "+", "subtract": "-"}, {"multiply": "*", "floordiv": "//", "floormod": "%"}
LEVELS = {"or": "or"}, {"and": "and"}, COMPARISONS, SUMS, PRODUCTS  # each binds more tightly
# Function -> (infix symbol, precedence).
INFIX = {name: (sign, n) for n, level in enumerate(LEVELS, 1) for name, sign in level.items()}
OPERATORS = {symbol: (name, level) for name, (symbol, level) in INFIX.items()}
COMPARISON = 3
SHORT = {"minimum": "min", "maximum": "max"}  # in index terms
LONG = {short: name for name, short in SHORT.items()}
INDEX = {"add", "subtract", "multiply", "floordiv", "floormod", *SHORT}
SIZES: ContextVar[Mapping[str, Node]] = ContextVar("sizes")  # by label, of the text being read
INLINE_SIZE = 40  # a larger index term gets a name


def is_index(node: Node) -> bool:
    return node.type.dtype is i64 and node.type.lanes == 1


def is_negative(node: Node) -> bool:
    """Whether the term is a negative literal, which prints as a subtraction."""
    value = node.op.value if isinstance(node.op, Constant) else 0
    return type(value) is int and -(2**63) < value < 0


def _show_load(term: Node, ref: Ref) -> str:
    load = op_of(term, Load)
    rank = load.buffer.type.rank
    index, rest = map(ref, term.args[:rank]), map(ref, term.args[rank:])
    return show_access("load", load, ", ".join(index), *rest)


def show_access(word: str, load: Any, index: str, *rest: str) -> str:
    """The text of a load at an index; `rest` is a mask's condition and other value, or a count."""
    text = f"{word} {show_name(load.buffer.name)}[{index}]"
    if load.masked:
        return f"{text} if {rest[0]} else {rest[1]}"
    if rest:
        return f"{text} count {rest[0]}"
    return f"{text} ahead {load.ahead}" if load.ahead else text


Show = Mapping[str, Callable[[Node, Ref], str]]  # forms of terms, by op name
SHOW: Show = {"load": _show_load}
Named = Callable[[Node], str | None]  # the name of a term that has one


def show_term(term: Node, named: Named = lambda n: None, outer: int = 0, forms: Show = SHOW) -> str:
    """The text of a term in an expression of precedence `outer`; `named` has names of terms."""
    name = named(term)
    if name is not None:
        return name
    match term.op:
        case Constant(value=value, dtype=dtype):
            return show_literal(value, dtype)
        case Axis(label=label) | Symbol(label=label) | Acc(label=label):
            return show_name(label)
        case Running(label=label):
            return f"running {show_name(label)}"
        case Apply(function=function) if infix := _infix(term, function.name, named, forms):
            text, level = infix
            return f"({text})" if level < outer else text
        case _:
            return show_call(term, lambda n: show_term(n, named, forms=forms), forms)


def _infix(term: Node, name: str, named: Named, forms: Show) -> tuple[str, int] | None:
    args = term.args
    logic = name in ("and", "or")
    fits = all(a.type.dtype is boolean for a in args) if logic else all(map(is_index, args))
    if name not in INFIX or not fits or (name == "subtract" and isinstance(args[1].op, Constant)):
        return None
    symbol, level = INFIX[name]
    left = show_term(args[0], named, level + (level == COMPARISON), forms)
    if name == "add" and is_negative(args[1]):
        return f"{left} - {-args[1].op.value}", level  # type: ignore[attr-defined]
    return f"{left} {symbol} {show_term(args[1], named, level + 1, forms)}", level


def show_call(term: Node, ref: Ref, forms: Show = SHOW) -> str:
    """The text of a function or op with its arguments, each as `ref` shows it."""
    if isinstance(term.op, Apply):
        name = term.op.function.name
        short = SHORT.get(name) if all(map(is_index, term.args)) else None
        return f"{short or name}({', '.join(map(ref, term.args))})"
    return forms.get(term.op.name, show_op)(term, ref)


def is_inline(term: Node, sizes: dict[Node, int]) -> bool:
    """Whether a term is written where it is used: small arithmetic on axes and literals."""
    return 0 < _size(term, sizes) <= INLINE_SIZE


def _size(term: Node, sizes: dict[Node, int]) -> int:
    """Nodes in a term of index arithmetic alone, each occurrence counted; 0 for other terms."""
    if term not in sizes:
        if isinstance(term.op, Axis | Constant | Symbol) and is_index(term):
            sizes[term] = 1
        elif isinstance(term.op, Apply) and term.op.function.name in INDEX and is_index(term):
            parts = [_size(a, sizes) for a in term.args]
            sizes[term] = 1 + sum(parts) if all(parts) else 0
        else:
            sizes[term] = 0
    return sizes[term]


class TermReader(Scope):
    """Reads terms. A name is an axis; NestScope also knows lets and accumulators."""

    forms: Mapping[str, Callable[[Cursor, Any], Node]] = {}  # by their first word
    level: Any = None  # the Level whose ops may stand in a term; None: all ops may

    def check(self, cursor: Cursor, name: str) -> None:
        """An error if no op of that name may stand in a term here."""
        if self.level is not None:
            self.level.check(cursor, name)

    def name(self, cursor: Cursor, name: str) -> Node:
        return SIZES.get({}).get(name) or make_node(cursor, Axis(name))

    def running(self, cursor: Cursor, name: str) -> Node:
        return cursor.fail(f"running {name} outside a loop")

    def operand(self, cursor: Cursor) -> Node:
        return self.expression(cursor)

    def expression(self, cursor: Cursor, outer: int = 0) -> Node:
        """Read an expression of operators that bind more tightly than `outer`."""
        left = self._operand(cursor)
        while True:
            name, level = OPERATORS.get(cursor.peek(), ("", -1))
            if level <= outer or cursor.token()[0] == "string":
                return left
            cursor.position += 1
            right = self.expression(cursor, level)
            number = right.op
            if name == "subtract" and isinstance(number, Constant) and number.dtype is i64:
                name, right = "add", make_node(cursor, Constant(-number.value, i64))
            left = make_node(cursor, Apply(FUNCTIONS[name]), left, right)
            if level == COMPARISON and OPERATORS.get(cursor.peek(), ("", 0))[1] == COMPARISON:
                cursor.fail("comparisons do not chain: join them with and")

    def _operand(self, cursor: Cursor) -> Node:
        if cursor.at_literal():
            return make_node(cursor, Constant(*cursor.literal()))
        if cursor.accept("("):
            inner = self.expression(cursor)
            cursor.expect(")")
            return inner
        if not cursor.at_name():
            cursor.expected("a value")
        word, after = cursor.peek(), cursor.peek(1)
        if cursor.token()[0] == "string":
            return self.name(cursor, cursor.string())
        if word == "running" and cursor.at_name(1):
            cursor.name()
            return self.running(cursor, cursor.name())
        formed = word in self.forms and cursor.at_name(1)
        if formed or after == "(" or (after == "{" and (word in OPS or f"{word}{{" in self.forms)):
            return self.call(cursor)
        return self.name(cursor, cursor.name())

    def call(self, cursor: Cursor) -> Node:
        """Read `add(x, y)`, an op with attributes, or a form of its own such as `load x[a0]`."""
        word, after = cursor.peek(), cursor.token(1)
        form = word if after[0] in ("name", "string") else word + after[1]
        if form in self.forms:
            cursor.name()
            term = self.forms[form](cursor, self)
            self.check(cursor, term.op.name)
            return term
        function = FUNCTIONS.get(LONG.get(word, word))
        if function is not None and after[1] == "(":
            cursor.name()
            return make_node(cursor, Apply(function), *self.arguments(cursor))
        if word not in OPS:
            ops = OPS if self.level is None else self.level.ops
            cursor.unknown("unknown op", word, [*FUNCTIONS, *LONG, *ops])
        self.check(cursor, word)
        return read_op(cursor, self)

    def index_term(self, cursor: Cursor) -> Node:
        """Read an expression that must be an i64 index."""
        term = self.expression(cursor)
        if not is_index(term):
            cursor.invalid(f"an index must be i64, not {term.type}")
        return term

    def condition(self, cursor: Cursor) -> Node:
        """Read an expression that must be a bool."""
        term = self.expression(cursor)
        if term.type.dtype is not boolean:
            cursor.invalid(f"a condition must be bool, not {term.type}")
        return term


class NameReader(TermReader):
    """Reads terms over some names alone; `unknown` is what an error calls any other one."""

    def __init__(self, known: Mapping[str, Node], unknown: str) -> None:
        self.known, self.unknown = known, unknown

    def name(self, cursor: Cursor, name: str) -> Node:
        return cursor.look_up(self.unknown, name, self.known)


CODECS[Function] = Codec(str, lambda cursor, scope: cursor.one_of("function", FUNCTIONS))
CODECS[Monoid] = Codec(
    str, lambda cursor, scope: cursor.one_of("monoid", MONOIDS | {LAST.name: LAST})
)
CODECS[Node] = Codec(show_term, lambda cursor, scope: TermReader().expression(cursor))
CODECS[Buffer] = Codec(lambda b: show_name(b.name), lambda cursor, scope: scope.buffer(cursor))
