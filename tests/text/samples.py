"""Small programs that between them use every form of the text: two built by hand, four read."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from weft.core.node import Graph, Node, make
from weft.core.types import TensorType, f32
from weft.scalar.monoid import SUM
from weft.scalar.nest import Buffer, Fold, For, Kernel, Load, Program, Store, Update
from weft.scalar.ops import FUNCTIONS, apply, axis, constant
from weft.tensor import ops
from weft.text import parse_program

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


# Every other form is read from its golden file, which must print as it stands.
FORMS = ("tensor_forms", "tile_forms", "fold_forms", "kernel_forms")
GOLDEN = Path(__file__).parent.parent / "golden" / "text"

SAMPLES: dict[str, Any] = {
    "rmsnorm": rmsnorm(),
    "relu": relu(),
    **{name: parse_program((GOLDEN / f"{name}.txt").read_text()) for name in FORMS},
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
