"""The text of one function of MLIR: names, constants, lines.

f = Function()
f.let("arith.addf", ("%x", "%y"), "f32")     # "%v"; the line %v = arith.addf %x, %y : f32
f.constant(1, "f32")                         # "%cst"; constants stand first
"""

import math
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.core.errors import UnsupportedOpError
from weft.core.types import DType

INDEX = "index"
NUMBERED = "v", "in", "cst"  # stems of names that end in a number
Args = Sequence[str]


def spelled(dtype: DType) -> str:
    """The type of a value of that dtype. UnsupportedOpError for a float of 8 bits: arith's casts
    overflow where torch's saturate."""
    if dtype.is_float and dtype.bits == 8:
        raise UnsupportedOpError(f"MLIR's dialects have no cast of {dtype} as torch's")
    names = {"uint": f"i{dtype.bits}", "bool": "i1", "pair": "i32"}
    return names.get(dtype.kind, dtype.name)


@dataclass
class Function:
    """One func.func: its constants, which stand first, and its lines."""

    lines: list[str] = field(default_factory=list)
    constants: dict[tuple[str, str], str] = field(default_factory=dict)  # (text, type) -> name
    called: dict[str, str] = field(default_factory=dict)  # functions it needs, with their text
    taken: set[str] = field(default_factory=set)
    depth: int = 1
    counts: Counter[str] = field(default_factory=Counter[str])

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def fresh(self, stem: str) -> str:
        """A name that no other value has: %stem, or with a number behind it."""
        plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in stem)
        plain = plain if plain[:1].isalpha() else f"n{plain}"
        name = f"{plain}0" if plain in NUMBERED else plain
        while name in self.taken:
            self.counts[plain] += 1
            name = f"{plain}{'' if plain in NUMBERED else '_'}{self.counts[plain]}"
        self.taken.add(name)
        return f"%{name}"

    def set(self, text: str, stem: str = "v") -> str:
        """Gives the result of an operation a name."""
        name = self.fresh(stem)
        self.line(f"{name} = {text}")
        return name

    def let(self, op: str, args: Args, type_: str, to: str = "") -> str:
        """Applies an operation to arguments of one type; `to` is the type of a conversion."""
        tail = f"{type_} to {to}" if to else type_
        return self.set(f"{op} {', '.join(args)} : {tail}")

    def constant(self, value: float, type_: str) -> str:
        text = literal(value, type_)
        if (text, type_) not in self.constants:
            stem = text if type_ == "i1" else f"c{text}" if type_.startswith("i") else "cst"
            self.constants[text, type_] = self.fresh(stem)
        return self.constants[text, type_]

    def compare(self, how: str, x: str, y: str, type_: str) -> str:
        op = "arith.cmpf" if type_.startswith(("f", "b")) else "arith.cmpi"
        return self.let(op, (how, x, y), type_)

    def select(self, condition: str, x: str, y: str, type_: str) -> str:
        return self.let("arith.select", (condition, x, y), type_)

    def require(self, condition: str, message: str) -> None:
        self.line(f'cf.assert {condition}, "{message}"')

    def begin(self, text: str) -> None:
        self.line(text)
        self.depth += 1

    def end(self, text: str = "}") -> None:
        self.depth -= 1
        self.line(text)

    def text(self, head: str) -> str:
        """The whole function, given its first line."""
        first = (
            f"  {name} = arith.constant {text} : {type_}"
            if type_ != "i1"
            else f"  {name} = arith.constant {text}"
            for (text, type_), name in self.constants.items()
        )
        return "\n".join([head, *first, *self.lines, "  return", "}", ""])


def literal(value: float, type_: str) -> str:
    """The value as an attribute: decimal where it is finite, else the bits."""
    if type_ == "i1":
        return "true" if value else "false"
    if type_.startswith("i"):
        return str(int(value))
    if math.isfinite(value):
        digits, exponent, power = repr(float(value)).partition("e")
        return f"{digits if '.' in digits else digits + '.0'}{exponent}{power}"
    if type_ == "bf16":
        return f"0x{struct.unpack('>I', struct.pack('>f', value))[0] >> 16:04X}"
    code = {"f16": ">e", "f32": ">f", "f64": ">d"}[type_]
    return "0x" + struct.pack(code, value).hex().upper()
