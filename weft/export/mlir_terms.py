"""The rows of scalar functions in MLIR's arith and math dialects.

apply(f, FUNCTIONS["sigmoid"], ("%x",), f32, "f32")     # writes three lines; the result's name
A u8 is an i8 whose operations say so, a bool an i1, a pair of bf16 an i32.
"""

from collections.abc import Callable

from weft.core.errors import UnsupportedOpError
from weft.core.types import DType, f32, i64
from weft.export.mlir_text import INDEX, Args, Function, spelled
from weft.scalar.ops import CASTS
from weft.scalar.ops import Function as Pointwise

Row = Callable[[Function, Args, DType, str], str]  # arguments, their dtype, their type -> a name

# One operation, by the kind of the arguments' dtype: float, int, uint, bool; - is none.
SAME = {
    "add": "arith.addf arith.addi arith.addi arith.ori",
    "subtract": "arith.subf arith.subi arith.subi",
    "multiply": "arith.mulf arith.muli arith.muli arith.andi",
    "divide": "arith.divf",
    "maximum": "arith.maximumf arith.maxsi arith.maxui arith.ori",
    "minimum": "arith.minimumf arith.minsi arith.minui arith.andi",
    "and": "- arith.andi arith.andi arith.andi",
    "or": "- arith.ori arith.ori arith.ori",
    "xor": "- arith.xori arith.xori arith.xori",
    "power": "math.powf",
    "fmod": "arith.remf",
    "atan2": "math.atan2",
    "negate": "arith.negf",
    "absolute": "math.absf math.absi -",
    "round": "math.roundeven",
    **{
        name: f"math.{name}"
        for name in """fma sqrt rsqrt exp exp2 expm1 log log2 log10 log1p tanh erf erfc sin cos tan
        asin acos atan sinh cosh floor ceil trunc""".split()
    },
}
KINDS = ("float", "int", "uint", "bool")
OPS = {
    (name, kind): op
    for name, ops in SAME.items()
    for kind, op in zip(KINDS, ops.split(), strict=False)
    if op != "-"
}
COMPARISONS = {  # of floats, signed and unsigned integers
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
    **{name: (f"o{name}", f"s{name}", f"u{name}") for name in ("lt", "le", "gt", "ge")},
}


def _divided(op: str) -> Row:
    """An integer division, which is 0 by 0: in MLIR that is undefined."""

    def row(f: Function, args: Args, dtype: DType, type_: str) -> str:
        zero, one = f.constant(0, type_), f.constant(1, type_)
        kind = "u" if dtype.kind == "uint" else "s"
        exact = f"{op}si" if kind == "s" else f"{op[-3:]}ui"  # of unsigned ones the floor is it
        if _nonzero(f, args[1]):
            return f.let(f"arith.{exact}", args, type_)
        none = f.compare("eq", args[1], zero, type_)
        by, minus = f.select(none, one, args[1], type_), ""
        if kind == "s":  # the least integer by -1 is undefined too: by 1, and negated
            minus = f.compare("eq", args[1], f.constant(-1, type_), type_)
            by = f.select(minus, one, by, type_)
        found = f.let(f"arith.{exact}", (args[0], by), type_)
        if minus and op != "rem":
            found = f.select(minus, f.let("arith.subi", (zero, args[0]), type_), found, type_)
        return f.select(none, zero, found, type_)

    return row


def _nonzero(f: Function, name: str) -> bool:
    """Whether it is a literal by which any integer can be divided."""
    return any(n == name and text not in ("0", "-1") for (text, _), n in f.constants.items())


def _floormod(f: Function, args: Args, dtype: DType, type_: str) -> str:
    """The rest with the sign of the divisor."""
    zero = f.constant(0, type_)
    is_float = dtype.is_float
    rest = f.let("arith.remf", args, type_) if is_float else _divided("rem")(f, args, dtype, type_)
    if dtype.kind == "uint":
        return rest
    less = "olt" if is_float else "slt"
    signs = (f.compare(less, x, zero, type_) for x in (rest, args[1]))
    differ = f.let("arith.xori", tuple(signs), "i1")
    inexact = f.compare("une" if is_float else "ne", rest, zero, type_)
    moves = f.let("arith.andi", (differ, inexact), "i1")
    moved = f.let("arith.addf" if is_float else "arith.addi", (rest, args[1]), type_)
    return f.select(moves, moved, rest, type_)


def _shift(op: str, full: bool) -> Row:
    """A shift; by its width or more, which MLIR leaves undefined, by all bits."""

    def row(f: Function, args: Args, dtype: DType, type_: str) -> str:
        arithmetic = full and dtype.kind == "int"
        most = f.constant(dtype.bits - 1, type_)
        outside = f.compare("ugt", args[1], most, type_)
        by = f.select(outside, most, args[1], type_)
        how = ("arith.shrsi" if arithmetic else "arith.shrui") if full else op
        found = f.let(how, (args[0], by), type_)
        return found if arithmetic else f.select(outside, f.constant(0, type_), found, type_)

    return row


def _integer_power(f: Function, args: Args, dtype: DType, type_: str) -> str:
    """By squares; 1 where the exponent is negative, as in C."""
    zero, one = f.constant(0, type_), f.constant(1, type_)
    least = "arith.maxui" if dtype.kind == "uint" else "arith.maxsi"
    power = f.let(least, (args[1], zero), type_)
    lo, hi, step = (f.constant(n, INDEX) for n in (0, dtype.bits, 1))
    out, bit = f.fresh("power"), f.fresh("bit")
    r, a, b = (f.fresh(stem) for stem in ("r", "a", "b"))
    inits = f"{r} = {one}, {a} = {args[0]}, {b} = {power}"
    types = ", ".join([type_] * 3)
    f.begin(
        f"{out}:3 = scf.for {bit} = {lo} to {hi} step {step} iter_args({inits}) -> ({types}) {{"
    )
    odd = f.let("arith.trunci", (b,), type_, "i1")
    times = f.select(odd, f.let("arith.muli", (r, a), type_), r, type_)
    square, half = f.let("arith.muli", (a, a), type_), f.let("arith.shrui", (b, one), type_)
    f.line(f"scf.yield {times}, {square}, {half} : {types}")
    f.end()
    return f"{out}#0"


def _cast(f: Function, x: str, source: DType, from_: str, target: DType) -> str:
    """A conversion: towards zero, of NaN and what no i64 holds 0, of more bits the lowest ones."""
    to = spelled(target)
    if source is target and from_ != INDEX:
        return x
    if from_ == INDEX:
        x = f.let("arith.index_cast", (x,), INDEX, "i64")
        return _cast(f, x, i64, "i64", target) if target is not i64 else x
    if target.kind == "bool":
        return f.compare("une" if source.is_float else "ne", x, f.constant(0, from_), from_)
    if target.is_float:
        return _to_float(f, x, source, from_, target)
    if source.is_float:
        return _from_float(f, x, from_, to)
    wider = "arith.extsi" if source.kind == "int" else "arith.extui"
    bits = 1 if source.kind == "bool" else source.bits
    if bits == target.bits:
        return x
    return f.let(wider if bits < target.bits else "arith.trunci", (x,), from_, to)


def _to_float(f: Function, x: str, source: DType, from_: str, target: DType) -> str:
    to = spelled(target)
    if target.bits == 16 and source is not f32:  # by f32, as everywhere in weft
        x, source, from_ = _to_float(f, x, source, from_, f32), f32, "f32"
    if source.is_float:
        return f.let("arith.extf" if source.bits < target.bits else "arith.truncf", (x,), from_, to)
    return f.let("arith.sitofp" if source.kind == "int" else "arith.uitofp", (x,), from_, to)


def _from_float(f: Function, x: str, from_: str, to: str) -> str:
    if from_ in ("f16", "bf16"):
        x, from_ = f.let("arith.extf", (x,), from_, "f32"), "f32"
    least = f.compare("oge", x, f.constant(-(2.0**63), from_), from_)
    most = f.compare("olt", x, f.constant(2.0**63, from_), from_)
    fits = f.let("arith.andi", (least, most), "i1")
    safe = f.select(fits, x, f.constant(0, from_), from_)
    whole = f.let("arith.fptosi", (safe,), from_, "i64")
    return whole if to == "i64" else f.let("arith.trunci", (whole,), "i64", to)


def _rounded(to: str) -> Row:
    def row(f: Function, args: Args, dtype: DType, type_: str) -> str:
        return f.let("arith.extf", (f.let("arith.truncf", args, "f32", to),), to, "f32")

    return row


def _halves(f: Function, pair: str) -> tuple[str, str]:
    """Both bf16 of a pair, as f32."""
    low = f.let("arith.shli", (pair, f.constant(16, "i32")), "i32")
    high = f.let("arith.andi", (pair, f.constant(-65536, "i32")), "i32")
    return f.let("arith.bitcast", (low,), "i32", "f32"), f.let(
        "arith.bitcast", (high,), "i32", "f32"
    )


def _dot(f: Function, args: Args, dtype: DType, type_: str) -> str:
    (a, b), (c, d) = (_halves(f, pair) for pair in args)
    products = (f.let("arith.mulf", factors, "f32") for factors in ((a, c), (b, d)))
    return f.let("arith.addf", tuple(products), "f32")


def _pack(f: Function, args: Args, dtype: DType, type_: str) -> str:
    words = (f.let("arith.bitcast", (x,), "bf16", "i16") for x in args)
    low, high = (f.let("arith.extui", (x,), "i16", "i32") for x in words)
    return f.let(
        "arith.ori", (low, f.let("arith.shli", (high, f.constant(16, "i32")), "i32")), "i32"
    )


def _sigmoid(f: Function, args: Args, dtype: DType, type_: str) -> str:
    one = f.constant(1, type_)
    power = f.let("math.exp", (f.let("arith.negf", args, type_),), type_)
    return f.let("arith.divf", (one, f.let("arith.addf", (one, power), type_)), type_)


def _bitcast(f: Function, args: Args, dtype: DType, type_: str) -> str:
    to = f"{'i' if dtype.is_float else 'f'}{dtype.bits}"
    return f.let("arith.bitcast", args, type_, to)


def _checked_index(f: Function, args: Args, dtype: DType, type_: str) -> str:
    low = f.compare("sge", args[0], f.constant(0, type_), type_)
    high = f.compare("slt", args[0], args[1], type_)
    f.require(f.let("arith.andi", (low, high), "i1"), "an index is out of range")
    return args[0]


def _checked_divisor(f: Function, args: Args, dtype: DType, type_: str) -> str:
    f.require(f.compare("ne", args[0], f.constant(0, type_), type_), "a division by zero")
    return args[0]


def _lgamma(f: Function, args: Args, dtype: DType, type_: str) -> str:
    """C's, of libm."""
    name = "lgamma" if type_ == "f64" else "lgammaf"
    f.called[name] = f"func.func private @{name}({type_}) -> {type_}\n"
    return f.set(f"func.call @{name}({args[0]}) : ({type_}) -> {type_}")


# Philox4x32-10 (Salmon et al. 2011), the first two words, as library/philox.py has it.
PHILOX = """func.func private @philox(%seed: i64, %counter: i64) -> i64 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c10 = arith.constant 10 : index
  %zero = arith.constant 0 : i64
  %half = arith.constant 32 : i64
  %low = arith.constant 4294967295 : i64
  %m0 = arith.constant 3528531795 : i64
  %m1 = arith.constant 3449720151 : i64
  %w0 = arith.constant 2654435769 : i64
  %w1 = arith.constant 3144134277 : i64
  %x0 = arith.andi %counter, %low : i64
  %x1 = arith.shrui %counter, %half : i64
  %y0 = arith.andi %seed, %low : i64
  %y1 = arith.shrui %seed, %half : i64
  %r:6 = scf.for %i = %c0 to %c10 step %c1 iter_args(%a = %x0, %b = %x1, %c = %zero, %d = %zero, %k = %y0, %l = %y1) -> (i64, i64, i64, i64, i64, i64) {
    %first = arith.muli %a, %m0 : i64
    %second = arith.muli %c, %m1 : i64
    %high0 = arith.shrui %second, %half : i64
    %mixed0 = arith.xori %high0, %b : i64
    %n0 = arith.xori %mixed0, %k : i64
    %n1 = arith.andi %second, %low : i64
    %high1 = arith.shrui %first, %half : i64
    %mixed1 = arith.xori %high1, %d : i64
    %n2 = arith.xori %mixed1, %l : i64
    %n3 = arith.andi %first, %low : i64
    %wide0 = arith.addi %k, %w0 : i64
    %k0 = arith.andi %wide0, %low : i64
    %wide1 = arith.addi %l, %w1 : i64
    %k1 = arith.andi %wide1, %low : i64
    scf.yield %n0, %n1, %n2, %n3, %k0, %k1 : i64, i64, i64, i64, i64, i64
  }
  %upper = arith.shli %r#1, %half : i64
  %word = arith.ori %r#0, %upper : i64
  return %word : i64
}
"""  # noqa: E501


def _philox(f: Function, args: Args, dtype: DType, type_: str) -> str:
    f.called["philox"] = PHILOX
    return f.set(f"func.call @philox({', '.join(args)}) : (i64, i64) -> i64")


INTEGERS = ("int", "uint")
ROWS: dict[tuple[str, str], Row] = {
    **{("floordiv", k): _divided("floordiv") for k in INTEGERS},
    **{("truncdiv", k): _divided("div") for k in INTEGERS},
    **{("fmod", k): _divided("rem") for k in INTEGERS},
    **{("floormod", k): _floormod for k in ("float", *INTEGERS)},
    **{("power", k): _integer_power for k in INTEGERS},
    **{("shift_left", k): _shift("arith.shli", False) for k in INTEGERS},
    **{("shift_right", k): _shift("", True) for k in INTEGERS},
    **{("negate", k): lambda f, a, d, t: f.let("arith.subi", (f.constant(0, t), *a), t)
       for k in INTEGERS},
    **{("not", k): lambda f, a, d, t: f.let("arith.xori", (*a, f.constant(-1, t)), t)
       for k in (*INTEGERS, "bool")},
    ("absolute", "uint"): lambda f, a, d, t: a[0],
    ("relu", "float"): lambda f, a, d, t: f.let("arith.maximumf", (*a, f.constant(0, t)), t),
    ("relu", "int"): lambda f, a, d, t: f.let("arith.maxsi", (*a, f.constant(0, t)), t),
    ("relu", "uint"): lambda f, a, d, t: a[0],
    ("reciprocal", "float"): lambda f, a, d, t: f.let("arith.divf", (f.constant(1, t), *a), t),
    ("sigmoid", "float"): _sigmoid,
    ("lgamma", "float"): _lgamma,
    ("bits", "float"): _bitcast,
    ("float_of", "int"): _bitcast,
    ("philox", "int"): _philox,
    ("checked_index", "int"): _checked_index,
    **{("checked_divisor", k): _checked_divisor for k in INTEGERS},
    ("round_f16", "float"): _rounded("f16"),
    ("round_bf16", "float"): _rounded("bf16"),
    ("pack_bf16", "float"): _pack,
    ("dot_bf16", "pair"): _dot,
}  # fmt: skip


def apply(f: Function, function: Pointwise, args: Args, dtype: DType, type_: str) -> str:
    """The lines that compute a function of arguments of one dtype, whose type is `type_`.

    Of `where` the dtype is that of its values. UnsupportedOpError for a function without a row.
    """
    name = function.name
    if name == "where":
        return f.select(*args, type_)  # type: ignore[call-arg]
    if isinstance(function.result, DType) and CASTS.get(function.result) is function:
        return _cast(f, args[0], dtype, type_, function.result)
    if name in COMPARISONS:
        which = {"float": 0, "uint": 2, "bool": 2}.get(dtype.kind, 1)
        return f.compare(COMPARISONS[name][which], *args, type_)  # type: ignore[call-arg]
    if (name, dtype.kind) in OPS:
        return f.let(OPS[name, dtype.kind], args, type_)
    if (name, dtype.kind) not in ROWS:
        raise UnsupportedOpError(f"MLIR's dialects have no {name} of {dtype}")
    return ROWS[name, dtype.kind](f, args, dtype, type_)
