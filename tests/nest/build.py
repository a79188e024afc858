"""Short names to write nests by hand with, and the programs that several tests use."""

from __future__ import annotations

from weft.core.node import Node, make
from weft.core.types import DType, TensorType, f32
from weft.scalar.monoid import MAX, SUM, SUMEXP, Monoid
from weft.scalar.nest import Buffer, Fold, For, Kernel, Load, Local, Program, Stmt, Store, Update
from weft.scalar.ops import apply, axis, constant

a0, a1, a2, a3, b0, b1 = map(axis, ("a0", "a1", "a2", "a3", "b0", "b1"))
c = constant


def buffer(name: str, *shape: int, dtype: DType = f32, space: str = "global") -> Buffer:
    return Buffer(name, TensorType(dtype, shape), space)


def flat(b: Buffer) -> Buffer:
    return Buffer(b.name, TensorType(b.type.dtype, (b.type.span,)), b.space)


def load(b: Buffer, *index: Node) -> Node:
    return make(Load(b), *index)


def masked(b: Buffer, index: tuple[Node, ...], condition: Node, other: Node) -> Node:
    return make(Load(b, True), *index, condition, other)


Bound = int | Node


def loop(a: Node, lo: Bound, hi: Bound, *body: Stmt, step: int = 1, bind: str = "") -> For:
    return For(a, _term(lo), _term(hi), body, step, bind=bind)


def reduce(
    a: Node, lo: Bound, hi: Bound, *body: Stmt, folds: tuple[Fold, ...] = (), step: int = 1
) -> For:
    return For(a, _term(lo), _term(hi), body, step, "reduce", folds=folds)


def _term(n: int | Node) -> Node:
    return c(n) if isinstance(n, int) else n


def fold(name: str, monoid: Monoid = SUM, dtype: DType = f32, lanes: int = 1) -> Fold:
    dtypes = monoid.carriers((dtype,))
    labels = (name,) if len(dtypes) == 1 else tuple(f"{name}_{i}" for i in range(len(dtypes)))
    return Fold(labels, monoid, dtypes, lanes)


def add(x: Node, y: Node) -> Node:
    return apply("add", x, y)


def mul(x: Node, y: Node) -> Node:
    return apply("multiply", x, y)


def sub(x: Node, y: Node) -> Node:
    return apply("subtract", x, y)


def least(x: Node, y: Node) -> Node:
    return apply("minimum", x, y)


def program(
    body: Stmt | tuple[Stmt, ...],
    inputs: tuple[Buffer, ...],
    outputs: tuple[Buffer, ...],
    level: str = "loop",
    name: str = "k",
) -> Program:
    """One kernel; at the kernel level it sees the buffers flat."""
    stmts = (body,) if isinstance(body, Stmt) else body
    see = flat if level == "kernel" else lambda b: b
    kernel = Kernel(
        name, tuple(map(see, inputs)), tuple(map(see, outputs)), stmts, ("model.py line 3",)
    )
    return Program(level, name, inputs, outputs, (kernel,))


def linear_relu(m: int, n: int, k: int) -> Program:
    """relu((x + b) @ w), one nest."""
    x, b, w, y = buffer("x", m, k), buffer("b", k), buffer("w", k, n), buffer("y", m, n)
    acc = fold("acc")
    term = mul(add(load(x, a0, a2), load(b, a2)), load(w, a2, a1))
    inner = reduce(a2, 0, k, Update(acc, (term,)), folds=(acc,))
    store = Store(y, (a0, a1), apply("relu", acc.accs[0]))
    return program(loop(a0, 0, m, loop(a1, 0, n, inner, store)), (x, b, w), (y,))


def rms_norm(rows: int, n: int) -> Program:
    x, w, y = buffer("x", rows, n), buffer("w", n), buffer("y", rows, n)
    acc = fold("acc")
    squares = reduce(a1, 0, n, Update(acc, (mul(load(x, a0, a1), load(x, a0, a1)),)), folds=(acc,))
    mean = mul(acc.accs[0], c(1 / n, f32))
    scale = apply("rsqrt", add(mean, c(1e-6, f32)))
    value = mul(mul(load(x, a0, a2), scale), load(w, a2))
    store = loop(a2, 0, n, Store(y, (a0, a2), value))
    return program(loop(a0, 0, rows, squares, store), (x, w), (y,))


def softmax(rows: int, n: int, online: bool = False) -> Program:
    """Three passes, or two when one fold carries the maximum and the sum."""
    x, y = buffer("x", rows, n), buffer("y", rows, n)
    top, total, both = fold("top", MAX), fold("total"), fold("both", SUMEXP)
    maximum, denominator = both.accs if online else (top.accs[0], total.accs[0])

    def shifted(a: Node) -> Node:
        return apply("exp", sub(load(x, a0, a), maximum))

    if online:
        passes = [reduce(a1, 0, n, Update(both, (load(x, a0, a1),)), folds=(both,))]
    else:
        passes = [
            reduce(a1, 0, n, Update(top, (load(x, a0, a1),)), folds=(top,)),
            reduce(a1, 0, n, Update(total, (shifted(a1),)), folds=(total,)),
        ]
    store = Store(y, (a0, a2), apply("divide", shifted(a2), denominator))
    return program(loop(a0, 0, rows, *passes, loop(a2, 0, n, store)), (x,), (y,))


def tiled_linear(m: int, n: int, k: int, by: int = 16) -> Program:
    """x @ w in blocks with tails; a panel of w is packed into a local buffer."""
    x, w, y = buffer("x", m, k), buffer("w", k, n), buffer("y", m, n)
    panel, acc = buffer("panel", k, by, space="local"), fold("acc")
    rows, columns = least(add(b0, c(by)), c(m)), least(add(b1, c(by)), c(n))
    pack = loop(a2, 0, k, loop(a1, b1, columns, Store(panel, (a2, sub(a1, b1)), load(w, a2, a1))))
    value = mul(load(x, a0, a3), load(panel, a3, sub(a1, b1)))
    inner = reduce(a3, 0, k, Update(acc, (value,)), folds=(acc,))
    lanes = loop(a1, b1, columns, inner, Store(y, (a0, a1), acc.accs[0]), bind=f"vector{by}")
    block = loop(b0, 0, m, loop(a0, b0, rows, lanes, bind="register"), step=by, bind="serial")
    body = loop(b1, 0, n, Local(panel), pack, block, step=by, bind="parallel")
    return program(body, (x, w), (y,), level="tile")
