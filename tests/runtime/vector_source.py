"""C that calls every function of weft_vector.h over arrays, and what numpy calls each of them."""

from __future__ import annotations

import numpy as np
import torch

NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "bool": np.bool_,
}
FLOATS = ["f32", "f64"]
INTEGERS = ["i8", "i16", "i32", "i64", "u8"]
NUMBERS = FLOATS + INTEGERS
COMPARES = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
UNARY = {"neg": np.negative, "abs": np.abs}
FLOAT_UNARY = {
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.round,
}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmod": np.fmod,
}


def remainder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """torch's own f32 remainder gives NaN where the quotient overflows."""
    return (
        torch.remainder(a.double(), b.double()) if a.is_floating_point() else torch.remainder(a, b)
    )


BY_TORCH = {"floormod": remainder, "floordiv": torch.floor_divide}
INTEGER_BINARY = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
FOLDS = {"fold_max": np.max, "fold_min": np.min, "fold_add": np.sum, "fold_mul": np.prod}
# What moves lanes of p to q: _D stands for a dtype and the lanes, as in load_f32x16.
MEMORY = {
    "part": "store_n_D(q, load_n_D(p, n), n);",
    "ahead": "store_D(q, load_ahead_D(p, 64));",
    "move": "stream_D(q, load_D(p)); weft_fence();",
    "move_if": "stream_if_D(n, q, load_D(p)); weft_fence();",
    "gather": "store_D(q, gather_D(p, LAST - IOTA));",
    "gather_near": "store_D(q, gather_near_D(p, cast_I(LAST - IOTA)));",
    "gather_ahead": "store_D(q, gather_ahead_D(p, LAST - IOTA, 64));",
    "gather_n": "store_D(q, gather_n_D(p, 2 * IOTA, n));",
    "scatter": "scatter_D(q, 3 * IOTA, load_D(p));",
    "scatter_n": "scatter_n_D(q, 3 * IOTA, load_D(p), n);",
    "column": "scatter_stride_D(q, 2, gather_stride_D(p, 3));",
    "column_n": "scatter_stride_n_D(q, 2, gather_stride_n_D(p, 3, n), n);",
    "even": "store_D(q, gather_stride_D(p, 2));",
    "even_n": "store_D(q, gather_stride_n_D(p, 2, n));",
    "even_where": "store_D(q, gather_stride_where_D(p, 2, WHERE));",
    "part_where": "store_D(q, load_where_D(p, WHERE));",
    "gather_where": "store_D(q, gather_where_D(p, 2 * IOTA, WHERE));",
}
LANES_PER_CALL = 64  # every width divides it


def c_type(d: str) -> str:
    return "u8" if d == "bool" else d


class Source:
    """The C under test: one function per header function, looping it over arrays."""

    def __init__(self, lanes: int) -> None:
        self.lanes, self.x = lanes, f"x{lanes}" if lanes > 1 else ""
        self.text = f'#define WEFT_LANES {lanes}\n#include "weft_vector.h"\n'
        for d in NUMBERS:
            self.arithmetic(d)
        self.booleans_and_casts()
        self.memory()

    def function(self, name: str, inputs: str, out: str, body: str) -> None:
        parameters = "".join(f"const {c_type(d)} *p{i}, " for i, d in enumerate(inputs.split()))
        loop = f"for (i64 i = 0; i < n; i += {self.lanes})"
        self.text += f"void do_{name}({parameters}{c_type(out)} *q, i64 n) {{ {loop} {body} }}\n"

    def lanewise(self, op: str, d: str, inputs: str, out: str) -> None:
        x = self.x
        loads = ", ".join(f"load_{i}{x}(p{n} + i)" for n, i in enumerate(inputs.split()))
        self.function(f"{op}_{d}", inputs, out, f"store_{out}{x}(q + i, {op}_{d}{x}({loads}));")

    def fold(self, op: str, d: str, sign: str = "") -> None:
        load = f"load_{d}{self.x}(p0 + i)"
        self.function(f"{op}_{d}", d, d, f"q[i / {self.lanes}] = {sign}{op}_{d}{self.x}({load});")

    def arithmetic(self, d: str) -> None:
        unary = ["neg", "abs", *FLOAT_UNARY] if d in FLOATS else ["neg", "abs", "not"]
        binary = ["copysign"] if d in FLOATS else [*INTEGER_BINARY, "shl", "shr"]
        for op in unary:
            self.lanewise(op, d, d, d)
        for op in (*BINARY, *BY_TORCH, "div", *binary):
            self.lanewise(op, d, f"{d} {d}", d)
        for op in COMPARES:
            self.lanewise(op, d, f"{d} {d}", "bool")
        for op in FOLDS:
            self.fold(op, d)
        self.lanewise("select", d, f"bool {d} {d}", d)

    def booleans_and_casts(self) -> None:
        x = self.x
        for a in NUMPY:
            for b in NUMPY:
                self.lanewise(f"cast_{a}", b, a, b)
        for op in ("and", "or", "xor", *COMPARES):
            self.lanewise(op, "bool", "bool bool", "bool")
        for op in ("fold_and", "fold_or"):
            self.fold(op, "bool", sign="-")
        for d in ("f16", "bf16", "f8e4m3fn", "f8e5m2"):
            self.function(f"widen_{d}", d, "f32", f"store_f32{x}(q + i, load_{d}{x}(p0 + i));")
            self.function(f"narrow_{d}", "f32", d, f"store_{d}{x}(q + i, load_f32{x}(p0 + i));")
            self.lanewise(f"round_{d}", "f32", "f32", "f32")
        self.lanewise("pack_bf16", "f32", "bf16 bf16", "i32")
        self.lanewise("dot_bf16", "i32", "i32 i32", "f32")
        self.lanewise("add_dot_bf16", "i32", "f32 i32 i32", "f32")
        for d in ("i8", "u8"):
            self.lanewise("pack_bytes", d, f"{d} {d} {d} {d}", "i32")
        for dot in ("dot_bytes", "dot_turned"):
            self.lanewise(dot, "i32", "i32 i32", "i32")
            self.lanewise(f"add_{dot}", "i32", "i32 i32 i32", "i32")

    def memory(self) -> None:
        for d in (*NUMPY, "f16"):
            parameters = f"const {c_type(d)} *p, {c_type(d)} *q, i64 n"
            for name, body in MEMORY.items():
                body = body.replace("cast_I", f"cast_i64_i32{self.x}")
                body = body.replace("WHERE", "lt_I(IOTA, splat_I(n)), load_n_D(p, 0)")
                body = body.replace("_D", f"_{d}{self.x}").replace("LAST", str(self.lanes - 1))
                body = body.replace("IOTA", f"iota_i64{self.x}(0)").replace("_I", f"_i64{self.x}")
                self.text += f"void do_{name}_{d}({parameters}) {{ {body} }}\n"
        for d in NUMBERS:
            kept = f"store_{d}{self.x}(q, kept_{d}{self.x}(load_{d}{self.x}(p)));"
            self.text += f"void do_kept_{d}(const {d} *p, {d} *q, i64 n) {{ {kept} }}\n"
        body = f"store_i32{self.x}(q, iota_i32{self.x}((i32)base));"
        self.text += f"void iota(i32 *q, i64 base) {{ {body} }}\n"
