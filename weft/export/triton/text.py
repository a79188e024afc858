"""Names of a printed Python file, and numbers and arguments as Python spells them."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from weft.core.arguments import Arguments
from weft.core.types import DType, TensorType

RESERVED = {
    "tl",
    "triton",
    "torch",
    "libdevice",
    "run",
    "expect",
    "range",
    "float",
    "device",
    "ANY",
}


class Names:
    """Python names, each once: x, x_1, x_2."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = {*taken, *RESERVED}

    def __call__(self, stem: str) -> str:
        plain = re.sub(r"\W", "_", stem, flags=re.ASCII)
        plain = plain if plain[:1].isalpha() and not keyword.iskeyword(plain) else f"n{plain}"
        name, count = plain, 0
        while name in self.taken:
            count += 1
            name = f"{plain}_{count}"
        self.taken.add(name)
        return name


class Word:
    """An expression in a tree of arguments, which prints as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def arguments(given: Arguments, operands: Sequence[str]) -> str:
    """What stands between the brackets of a library call."""
    positional, keywords = given.bind([Word(name) for name in operands], _constant)
    named = [f"{key}={value!r}" for key, value in keywords.items()]
    return ", ".join([*map(repr, positional), *named])


def _constant(tag: str, value: Any) -> Word:
    if tag in ("dtype", "layout", "memory_format"):
        return Word(f"torch.{str(value).removeprefix('torch.')}")
    if tag == "device":
        return Word("device")
    return Word(f"complex(*{value!r})" if tag == "complex" else f'float("{value}")')


def torch_dtype(dtype: DType) -> str:
    return f"torch.{'bool' if dtype.kind == 'bool' else dtype.numpy.name}"


def facts(type_: TensorType) -> str:
    """Shape, strides and dtype, as functions of torch take them."""
    return f"{_tuple(type_.shape)}, {_tuple(type_.layout)}, dtype={torch_dtype(type_.dtype)}"


def _tuple(numbers: Sequence[Any]) -> str:
    return f"({', '.join(map(str, numbers))}{',' * (len(numbers) == 1)})"


LONG = 100  # characters of a line, at most where a call can be broken


def wrapped(line: str) -> str:
    """The line; a long call with an argument a line."""
    head = re.match(r"( *)(?:def )?(?:\w+ = )?[\w.]+(?:\[.*?\])?\(", line)
    if len(line) <= LONG or head is None or not line.rstrip(":").endswith(")"):
        return line
    parts, depth, start = list[str](), 0, head.end()
    end = len(line.rstrip(":")) - 1
    for i in range(start, end):
        depth += (line[i] in "([") - (line[i] in ")]")
        if depth < 0:
            return line
        if line[i] == "," and depth == 0:
            parts.append(line[start:i].strip())
            start = i + 1
    parts.append(line[start:end].strip())
    inner = "".join(f"\n{head[1]}    {part}," for part in parts)
    return f"{head[0]}{inner}\n{head[1]}{line[end:]}"


def without(lines: Sequence[str], names: Collection[str]) -> list[str]:
    """The lines without those that give one of these names a value which nothing reads."""
    words = Counter(word for line in lines for word in {*re.findall(r"\w+", line)})
    kept = [n for n in lines if not (n.split()[0] in names and words[n.split()[0]] == 1)]
    return kept if len(kept) == len(lines) else without(kept, names)
