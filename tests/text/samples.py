"""Small programs built by hand that between them use every form of the text."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

import weft.kernel.text
import weft.tensor.text  # noqa: F401  (both fill the table of levels)
from weft.core.graph import Graph
from weft.core.node import Node, make
from weft.core.types import (
    TensorType,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    i64,
)
from weft.kernel import ops as vectors
from weft.scalar.monoid import MONOIDS, SUM
from weft.scalar.nest import (
    Buffer,
    Call,
    Fold,
    For,
    Kernel,
    Load,
    Local,
    Program,
    Store,
    Update,
)
from weft.scalar.ops import FUNCTIONS, apply, axis, constant
from weft.tensor import ops

a0, a1, a2, b0 = map(axis, ("a0", "a1", "a2", "b0"))
i0, i1, i2 = map(axis, ("i0", "i1", "i2"))
zero = constant(0)


def f(name: str, *args: Node | int) -> Node:
    return apply(name, *(constant(a) if isinstance(a, int) else a for a in args))


def scalar(value: float, dtype: Any) -> Node:
    return make(ops.Scalar(value, dtype))


def mapped(name: str, *args: Node) -> Node:
    return make(ops.Map(FUNCTIONS[name]), *args)


def loop(variable: Node, hi: int, *body: Any, **keywords: Any) -> For:
    return For(variable, zero, constant(hi), tuple(body), **keywords)


def rmsnorm() -> Graph:
    x = make(ops.Input("x", TensorType(f32, (1, 32, 2048))))
    w = make(ops.Input("weight", TensorType(f32, (2048,))))
    r = make(ops.Reduce(SUM, (2,)), mapped("multiply", x, x))
    mean = mapped("multiply", r, scalar(1 / 2048, f32))
    scale = mapped("rsqrt", mapped("add", mean, scalar(1e-6, f32)))
    wide = make(ops.View((1, 32, 2048), (i0, i1, zero)), scale)
    y = mapped("multiply", mapped("multiply", x, wide), make(ops.View((1, 32, 2048), (i2,)), w))
    names = {r: "sum", wide: "sum", y: "2 bad name"}
    return Graph("tensor", "rms_norm", (x, w), (y,), names, {r: "model.py line 3:\n  x.sum()"})


def tensor_forms() -> Graph:
    x = make(ops.Input("x", TensorType(f32, (18, 4), (1, 18))))
    rows = make(ops.Input("the rows", TensorType(i64, (5,))))
    m = make(ops.Input("m", TensorType(boolean, (18, 4))))
    inside = f("and", f("ge", i0, 1), f("lt", i0, 17))
    pad = make(ops.View((18, 4), (f("add", i0, -1), i1), inside, 0.0), x)
    edge = f("or", f("eq", f("floormod", i0, 3), 0), f("not", f("ne", i1, i0)))
    hole = make(
        ops.View((18, 4), (i0, f("subtract", f("multiply", i1, 2), i1)), edge, -math.inf), x
    )
    half = mapped("f16", hole)
    true = make(ops.View((3,), (i0, zero), f("gt", f("where", f("le", i0, 1), i0, 2), 0), True), m)
    where = make(ops.Index((2, 3), f("minimum", f("floordiv", f("add", i0, i1), 2), 4)))
    bools = make(ops.Index((2,), f("eq", f("subtract", i0, 1), 0)))
    picked = make(ops.Gather((0,), ()), make(ops.View((18,), (i0, zero)), x), rows)
    cast_ = mapped("where", bools, scalar(2, i64), make(ops.Index((2,), f("multiply", i0, -1))))
    best = make(ops.Reduce(MONOIDS["argmax"], (0, 1)), x)
    ran = make(ops.Scan(SUM, 0, True), make(ops.Scan(MONOIDS["max"], 1), x))
    types = (TensorType(f32, (18, 4)), TensorType(i64, (18, 4), (1, 18)))
    sort = make(ops.Extern("aten.sort.default", '["\\n",{"tensor":0}]', types, "no sort", 3), x)
    parts = (make(ops.Part(0), sort), make(ops.Part(1), sort))
    odd = mapped("add", half, scalar(math.nan, f16)), mapped("not", m)
    outputs = (pad, true, where, picked, cast_, best, ran, *parts, *odd, scalar(-0.0, bf16), x)
    return Graph("tensor", "forms of text", (x, rows, m), outputs)


def buffers(*specs: tuple[str, Any, tuple[int, ...]]) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, TensorType(dtype, shape)) for name, dtype, shape in specs)


def relu() -> Program:
    x, bias, w = inputs = buffers(("x", f32, (16, 64)), ("bias", f32, (64,)), ("w", f32, (64, 16)))
    (out,) = buffers(("relu", f32, (16, 16)))
    fold = Fold(("acc0",), SUM, (f32,))
    term = f("add", make(Load(x), a0, a2), make(Load(bias), a2))
    update = Update(fold, (f("multiply", term, make(Load(w), a2, a1)),))
    store = Store(out, (a0, a1), f("relu", fold.accs[0]))
    inner = loop(a2, 64, update, role="reduce", folds=(fold,))
    kernel = Kernel(
        "relu", inputs, (out,), (loop(a0, 16, loop(a1, 16, inner, store)),), ("a.py: x",)
    )
    return Program("loop", "main", inputs, (out,), (kernel,))


def tile_forms() -> Program:
    """Declared, listed and inferred folds; steps; masks; locals; a library call; a scan."""
    (x,) = buffers(("x", f32, (16, 64)))
    best, y, z, last = outputs = buffers(
        ("in0", i64, (16,)), ("output", f32, (16,)), ("odd name", f32, (16, 64)), ("s", f64, ())
    )
    t = Buffer("t", TensorType(f32, (64,)), "local")
    fast = Buffer("fast", TensorType(f32, (4,)), "shared")
    arg = Fold(("acc0", "acc1"), MONOIDS["argmax"], (f32, i64))
    listed = Fold(("acc2",), MONOIDS["max"], (f32,))
    run = Fold(("acc5",), SUM, (f32,))
    v = make(Load(x), a0, a1)
    before = make(Load(x, True), a0, f("add", a1, -1), f("lt", 0, a1), constant(0.5))
    hi = f("minimum", f("add", b0, 16), 64)
    inner = For(
        a1, b0, hi, (Update(arg, (v, a1)), Update(listed, (before,))), bind="vector", role="reduce"
    )
    blocked = loop(b0, 64, loop(a2, 2, inner, bind="register"), step=16, role="reduce")
    inner_folds = For(axis("j"), zero, constant(1), (blocked,), role="reduce", folds=(listed, arg))
    scan = loop(
        a1, 64, Update(run, (v,)), Store(z, (a0, a1), run.running[0]), role="scan", folds=(run,)
    )
    index = make(Load(best), a0)
    far = f("floormod", f("add", index, a0), 16)
    body = (
        Local(t),
        Local(fast),
        Store(last, (), constant(1.5, f64)),
        loop(
            a0, 16,
            inner_folds,
            Store(best, (a0,), arg.accs[1]),
            Store(y, (a0,), listed.accs[0], f("gt", arg.accs[0], constant(0.0))),
            scan,
            Store(t, (far,), f("add", make(Load(t), f("floordiv", a0, 2)), constant(-math.inf))),
            bind="parallel",
        ),
        loop(a2, 0),
    )  # fmt: skip
    kernel = Kernel("forms", (x,), outputs, body)
    sorted_ = buffers(("v", f32, (16,)), ("i", i64, (16,)))
    call = Call("aten.sort.default", '[{"tensor":0},"a\\"b"]', (y,), sorted_, "there is no sort")
    none = Call("aten.nothing", "[]", (), ())
    return Program("tile", "main", (x,), (z, sorted_[1], x), (kernel, call, none))


def fold_forms() -> Program:
    """A fold with types its update does not give, and one never updated."""
    (x,), (y,) = buffers(("x", f32, (4,))), buffers(("y", f64, ()))
    told = Fold(("acc0",), SUM, (f64,))
    unused = Fold(("acc1", "acc2"), MONOIDS["sumexp"], (f32, f32), 8)
    update = Update(told, (make(Load(x), a0),))
    body = (loop(a0, 4, update, role="reduce", bind="unroll", folds=(unused, told)),)
    body += (Store(y, (), told.accs[0]),)
    return Program("loop", "folds", (x,), (y,), (Kernel("k", (x,), (y,), body),))


def kernel_forms() -> Program:
    x, y = buffers(("x", f32, (1024,)))[0], buffers(("y", f32, (1024,)))[0]
    n = f("minimum", f("subtract", 1024, b0), 16)
    lanes = f("add", b0, vectors.lanes_of(16))
    mask = f("lt", lanes, make(vectors.Splat(16), n))
    v = make(vectors.VectorLoad(x, 16), b0)
    terms = [
        make(vectors.VectorLoad(x, 16, 4, True), f("multiply", b0, 4), n),
        make(vectors.VectorMaskedLoad(x, 16), f("add", b0, 32), mask, constant(0.0)),
        make(vectors.VectorGather(x, 16), lanes),
        make(vectors.VectorGather(x, 16, True), f("multiply", lanes, 2), mask, constant(1e-6)),
        make(vectors.Shuffle(8), v),
        f("add", v, make(vectors.Extract(3), v)),
        f("where", mask, v, constant(math.nan)),
    ]
    fold = Fold(("acc0",), SUM, (f32,), 16)
    stores = [vectors.VectorStore(y, b0, t, 16) for t in terms]
    total = make(Load(x), zero)
    body = (
        loop(b0, 1024, *stores, step=16, bind="parallel"),
        loop(b0, 1024, Update(fold, (v,)), step=16, role="reduce", bind="serial", folds=(fold,)),
        vectors.VectorStore(y, zero, fold.accs[0], 16, 4, stream=True),
        vectors.VectorStore(
            y, zero, fold.accs[0], 16, 1, constant(5), f("gt", fold.accs[0], total)
        ),
        vectors.VectorScatter(y, vectors.lanes_of(16), fold.accs[0], 16, constant(3)),
        vectors.VectorScatter(y, vectors.lanes_of(16), fold.accs[0], 16),
        Store(y, (zero,), make(vectors.Extract(0), fold.accs[0])),
    )
    outputs = (Buffer("y", TensorType(f32, (32, 32))),)
    return Program("kernel", "main", (x,), outputs, (Kernel("k", (x,), (y,), body),))


SAMPLES = {
    f.__name__: f() for f in (rmsnorm, tensor_forms, relu, tile_forms, fold_forms, kernel_forms)
}


def same(a: Any, b: Any) -> bool:
    """Structural equality; terms are interned, so the same term is the same object."""
    if isinstance(a, Node) or isinstance(b, Node):
        return a is b
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    if type(a) is not type(b) or not is_dataclass(a):
        return bool(a == b)
    compared = [x.name for x in fields(a) if x.name not in ("origin", "names")]
    return all(same(getattr(a, n), getattr(b, n)) for n in compared)
