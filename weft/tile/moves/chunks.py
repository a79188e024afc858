"""Builds the nests of a kernel that goes over a block of rows by chunks of columns.

state = chunks.state(fold, value, ())        # a fold along the rows, kept from chunk to chunk
load = chunks.keep("p", value)               # a value for each row and column of the chunk
chunks.close()                               # what a row does with a chunk, as one nest: in .each
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.core.node import Node, make, substitute
from weft.core.types import TensorType
from weft.scalar.affine import slack
from weft.scalar.index import simplify
from weft.scalar.monoid import MAX, SUM
from weft.scalar.nest import Block, Buffer, Fold, For, Load, Stmt, Store, Update, free_variables
from weft.scalar.ops import apply, axis, constant, function_of, value_of
from weft.scalar.updates import guarded
from weft.tile.analysis.access import narrow
from weft.tile.analysis.degree import Degrees, NotByChunks, finite
from weft.tile.moves.loops import nested
from weft.tile.moves.merge import ROW
from weft.tile.moves.skip import ruled_out

COLUMN = axis("column")  # of a chunk, as ROW of a block
START, AT = axis("start"), axis("at")  # of the block, and of the chunk


@dataclass
class State:
    """A fold along the rows of a block, with its partial result for each row."""

    fold: Fold
    held: Buffer
    degree: int  # in exp(s - maximum)
    void: bool  # whether it adds nothing where exp(s - maximum) is 0: no product with any number

    def load(self, *index: Node) -> Node:
        return make(Load(self.held), ROW, *index)


@dataclass
class Column:
    """A loop over the columns of a chunk, as it is built."""

    folds: list[Fold] = field(default_factory=list[Fold])
    body: list[Stmt] = field(default_factory=list[Stmt])


@dataclass
class Chunks:
    """The statements before the first chunk, in each chunk, and after the last."""

    block: int  # rows
    chunk: int  # columns
    length: int  # of a row
    states: dict[Node, State] = field(default_factory=dict[Node, State])  # by accumulator
    degrees: Degrees = field(default_factory=Degrees)
    kept: list[Buffer] = field(default_factory=list[Buffer])  # for each column of a chunk
    top: State | None = None
    values: dict[Buffer, Node] = field(default_factory=dict[Buffer, Node])  # of what is handed over
    last: Node | None = None  # the column from which on nothing changes, if there is one
    columns: list[Column] = field(default_factory=list[Column])  # of the nest in the making
    ends: list[State] = field(default_factory=list[State])  # that it leaves for the next chunk
    made: dict[Node, Node] = field(default_factory=dict[Node, Node])  # stored by its last loop
    start: list[Stmt] = field(default_factory=list[Stmt])
    each: list[Stmt] = field(default_factory=list[Stmt])
    finish: list[Stmt] = field(default_factory=list[Stmt])

    def keep(self, name: str, value: Node) -> Node:
        """Store a value for each row and column of the chunk; the load of it."""
        held, there = self.buffer(name, value), self.masked(value)
        self.column(there).body.append(Store(held, (ROW, COLUMN), self.here(there)))
        return make(Load(held), ROW, COLUMN)

    def buffer(self, name: str, value: Node) -> Buffer:
        type_ = TensorType(value.type.dtype, (self.block, self.chunk))
        held = Buffer(f"{name}_chunk", type_, "local")
        self.kept.append(held)
        if self.degrees.of(value):
            self.degrees.scaled.add(held)
        return held

    def masked(self, value: Node) -> Node:
        """The value, or 0 beyond the last column."""
        if self.length % self.chunk == 0:
            return value
        return apply("where", self.there(), value, constant(0, value.type.dtype))

    def by_row(self, body: Block) -> Block:
        return (For(ROW, constant(0), constant(self.block), body),)

    def is_weight(self, value: Node) -> bool:
        """Whether a term of degree 1 is exp(s - maximum), or 0: from 0 to 1.

        No product of it is, which may be NaN where that is 0.
        """
        if function_of(value := narrow(value)) == "where":
            return self.is_weight(value.args[1])
        held = isinstance(value.op, Load) and self.values.get(value.op.buffer)
        return self.is_weight(held) if held else function_of(value) == "exp"

    def of_chunk(self, role: str = "free", folds: Sequence[Fold] = ()) -> For:
        return For(COLUMN, constant(0), constant(self.chunk), (), 1, role, "", tuple(folds))

    def column(self, *values: Node) -> Column:
        """The loop over columns that these terms go to: behind the one whose fold they need."""
        own = {a for c in self.columns[-1:] for f in c.folds for a in f.accs}
        if not self.columns or any(own & free_variables(v) for v in values):
            self.columns.append(Column())
            self.made = {}
        return self.columns[-1]

    def close(self) -> None:
        """Add the nest over rows that is complete now, and its updates of the running folds."""
        body: list[Stmt] = []
        for column in self.columns:
            role = "reduce" if column.folds else "free"
            body += nested([self.of_chunk(role, column.folds)], tuple(column.body))
        for state in (s for s in self.ends if s is not self.top):
            kept = state.load()
            kept = apply("multiply", kept, self.factor()) if state.degree else kept
            joined = state.fold.monoid.combine((kept,), state.fold.accs)
            body.append(Store(state.held, (ROW,), joined[0]))
        if self.top is not None and self.top in self.ends:
            body.append(Store(self.scale, (ROW,), self.growth()))
            body.append(Store(self.top.held, (ROW,), self.greatest()))
        if body:
            self.each += self.by_row(tuple(body))
        self.columns, self.ends, self.made = [], [], {}

    def state(self, fold: Fold, value: Node, sizes: Sequence[int]) -> State:
        """The running result of a fold, at its identity before the first chunk."""
        degree = self.degrees.of(value)
        if degree and fold.monoid is not SUM:
            raise NotByChunks
        (dtype,) = fold.dtypes
        name = f"{fold.labels[0]}_rows"
        held = Buffer(name, TensorType(dtype, (self.block, *sizes)), "local")
        (acc,), (none,) = fold.accs, fold.monoid.identity(fold.dtypes)
        void = degree == 1 and (fold.finite or self.is_weight(value))
        self.states[acc] = state = State(fold, held, degree, void)
        self.degrees.folds.add(acc)
        if fold.monoid is MAX and dtype.is_float and self.top is None:
            self.top, self.degrees.top = state, acc
            self.last = self.beyond(value)
        loops = [For(axis(f"{name}{n}"), constant(0), constant(s), ()) for n, s in enumerate(sizes)]
        index = (ROW, *(f.axis for f in loops))
        self.start += self.by_row(nested(loops, (Store(held, index, none),)))
        return state

    @property
    def scale(self) -> Buffer:
        """The factor that rescales the running sums of each row."""
        assert self.top is not None
        type_ = TensorType(self.top.fold.dtypes[0], (self.block,))
        return Buffer("scale_rows", type_, "local")

    def beyond(self, value: Node | None) -> Node | None:
        """The column from which on a condition makes a value -infinity in all rows of the block."""
        if value is not None and isinstance(value.op, Load):
            value = self.values.get(value.op.buffer, value)
        if value is None or function_of(value) != "where" or value_of(value.args[2]) != -math.inf:
            return None
        condition = slack(value.args[0])
        last = condition and ruled_out(condition, (AT, COLUMN), {ROW: (0, self.block - 1)})
        return simplify(last, {}) if last else None

    def inside(self, update: Update) -> Update:
        """The update, of columns that there are."""
        return update if self.length % self.chunk == 0 else guarded(update, self.there())

    def there(self) -> Node:
        """Whether a column of the chunk is one that there is."""
        return apply("lt", apply("add", AT, COLUMN), constant(self.length))

    def here(self, term: Node) -> Node:
        """The term as far as the rows are known, up to this chunk."""
        if self.top is None:
            return term
        (top,) = self.top.fold.accs
        return substitute((term,), {top: finite(self.greatest())})[0]

    def greatest(self) -> Node:
        """The running maximum, this chunk included."""
        assert self.top is not None
        if self.top not in self.ends:
            return self.top.load()
        return self.top.fold.monoid.combine((self.top.load(),), self.top.fold.accs)[0]

    def growth(self) -> Node:
        """exp(maximum before - maximum now), 0 before the first number."""
        assert self.top is not None
        return apply("exp", apply("subtract", self.top.load(), finite(self.greatest())))

    def factor(self) -> Node:
        """What scales sums so far; the nest of rows that finds it knows it, others read it."""
        return self.growth() if self.top in self.ends else make(Load(self.scale), ROW)

    def whole_fold(self, state: State, places: Sequence[Node] = ()) -> Node:
        """A fold of all columns; NaN where the members would subtract infinities."""
        kept = state.load(*places)
        if not state.degree or not self.degrees.plain or self.top is None:
            return kept
        top = self.top.load()
        return apply("multiply", kept, apply("exp", apply("subtract", top, top)))
