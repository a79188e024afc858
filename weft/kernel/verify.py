"""Verify a kernel program: the invariants of weft/scalar/verify.py, and

1. every buffer is flat: rank 1, elements side by side;
2. no register or vector loop is left;
3. the lanes of a vector op's parts agree, and are a power of two where lanes are exchanged;
4. a counted load or store stays in bounds up to its count;
5. a box is stored, as a whole and without waiting, and nothing else is done with it.
"""

from weft.core.node import Node, Op, require
from weft.core.types import boolean
from weft.kernel import ops
from weft.kernel.ops import Box, Exchange, Extract, Matrix, Shuffle, VectorLoad, VectorStore
from weft.scalar import nest
from weft.scalar.ops import apply, constant
from weft.scalar.verify import Level, Touch

WHOLE = "a box is stored async, as a whole, and nothing else is done with it"


def _touch(index: Node, count: Node, stride: int) -> Touch | None:
    """None where indices are data: then bounds are the interpreter's to check."""
    last = apply("multiply", apply("subtract", count, constant(1)), constant(stride))
    return [(index, apply("add", index, last))] if stride else None


def _load(op: VectorLoad, args: tuple[Node, ...]) -> Touch | None:
    if op.masked:
        return None
    return _touch(args[0], args[1] if op.counted else constant(op.lanes), op.stride)


def _store(stmt: VectorStore) -> Touch | None:
    if stmt.mask is not None:
        return None
    return _touch(stmt.index, stmt.count or constant(stmt.lanes), stmt.stride)


def _check(part: nest.Stmt | Node, loops: tuple[nest.For, ...]) -> None:
    op = part.op if isinstance(part, Node) else part
    buffer: nest.Buffer | None = getattr(op, "buffer", None)
    if buffer is not None:
        flat = buffer.type.rank == 1 and buffer.type.layout == (1,)
        require(flat, f"{buffer.name} is {buffer.type}, a kernel sees flat buffers")
    if isinstance(part, Node):
        require(not any(isinstance(a.op, Box) for a in part.args), WHOLE)
        _check_lanes(part.op, part.args)
    elif isinstance(part, VectorStore):
        whole = part.how == "async" and part.lanes == part.value.type.lanes
        whole = whole and part.stride == 1 and part.mask is part.count is None
        require(whole or not isinstance(part.value.op, Box), WHOLE)
        agree = part.value.type.lanes in (1, part.lanes)
        require(agree, f"a value of {part.value.type.lanes} lanes is stored in {part.lanes}")
        _check_index(part, part.index, "scatter")
        for condition, lanes in ((part.mask, part.lanes), (part.when, 1)):
            if condition is not None:
                _check_condition(condition, lanes)
    elif isinstance(part, nest.Store):
        lanes = max(t.type.lanes for t in part.terms())
        require(lanes == 1, f"a vector of {lanes} lanes in a scalar store")


def _check_condition(condition: Node, lanes: int) -> None:
    kind = condition.type
    fits = kind.dtype is boolean and kind.lanes in (1, lanes)
    require(fits, f"a condition must be bool x{lanes}, is {kind}")


def _check_index(part: VectorLoad | VectorStore, index: Node, word: str) -> None:
    found, wanted = index.type.lanes, 1 if part.stride else part.lanes
    what = f"stride {part.stride}" if part.stride else f"a {word} of {part.lanes}"
    require(found == wanted, f"the index of {what} has {found} lanes")


def _check_lanes(op: Op, args: tuple[Node, ...]) -> None:
    lanes = [a.type.lanes for a in args]
    if isinstance(op, VectorLoad):
        _check_index(op, args[0], "gather")
        require(not op.counted or lanes[1] == 1, f"a count of {lanes[-1]} lanes")
        if op.masked:
            _check_condition(args[-2], op.lanes)
    elif isinstance(op, nest.Load):
        require(max(lanes) == 1, f"load of {op.buffer.name} takes scalar arguments")
    elif isinstance(op, Shuffle | Exchange):
        even = lanes[0] & (lanes[0] - 1) == 0 and 0 < op.distance < lanes[0]
        require(even, f"{op.name} by {op.distance} of {lanes[0]} lanes")
    elif isinstance(op, Extract):
        require(0 <= op.lane < lanes[0], f"lane {op.lane} of {lanes[0]}")


TOUCHES = {
    VectorLoad: _load,
    VectorStore: _store,
    Box: lambda *_: None,
    Matrix: lambda op, args: _touch(args[0], constant(op.span), 1),
    ops.LoadMatrices: lambda op, args: _touch(args[0], constant(ops.ROW), 1),
}
BINDS = (*nest.ORDERED, *nest.PARALLEL, *nest.PIPELINE)
KERNEL = Level("kernel", BINDS, ("scalar", "kernel"), TOUCHES, _check, flat=True)
verify = KERNEL.verify
