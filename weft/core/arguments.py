"""Arguments of library calls, as every level down to the runtime carries them.

arguments = Arguments.of([{"tensor": 0}, 2, {"dtype": "float16"}])
arguments.bind([x], constant)            # [x, 2, constant("dtype", "float16")], {}
What a tag such as "dtype" stands for is the library's business: library/calls.py has torch's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

Constant = Callable[[str, Any], Any]  # the object that a tag and its value stand for


@dataclass(frozen=True)
class Arguments:
    """Positional and keyword arguments; {"tensor": i} is the i-th operand of the call.

    {"size": i} is the i-th of `sizes`, which are no numbers yet. The text decides what is equal: 1,
    1.0 and true differ, as do 0.0 and -0.0.
    """

    text: str  # {"args": [...], "kwargs": {...}}, or only the list
    sizes: tuple[Any, ...] = ()
    args: list[Any] = field(init=False, compare=False, repr=False)
    kwargs: dict[str, Any] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        given = json.loads(self.text)
        tree: dict[str, Any] = {"args": given} if isinstance(given, list) else given
        object.__setattr__(self, "args", tree.get("args", []))
        object.__setattr__(self, "kwargs", tree.get("kwargs", {}))

    @classmethod
    def of(
        cls, args: Sequence[Any], kwargs: Mapping[str, Any] = {}, sizes: tuple[Any, ...] = ()
    ) -> Arguments:
        """Arguments of trees that JSON can say, in their one spelling."""
        tree = {"args": list(args), "kwargs": dict(kwargs)}
        return cls(json.dumps(tree, separators=(",", ":")), sizes)

    def shown(self) -> str:
        """The text with an expression for each size: {"size": "s0 * 64"}."""
        text = self.text
        for i, size in enumerate(self.sizes):
            text = text.replace(f'{{"size":{i}}}', f'{{"size":"{size}"}}')
        return text

    @classmethod
    def read(cls, text: str, size: Callable[[str], Any]) -> Arguments:
        """The arguments that `shown` says; `size` reads an expression."""
        found: list[Any] = []

        def numbered(match: re.Match[str]) -> str:
            found.append(size(match[1]))
            return f'{{"size":{len(found) - 1}}}'

        plain = re.sub(r'\{"size":"([^"]*)"\}', numbered, text)
        return cls(plain, tuple(found))

    def bind(self, operands: Any, constant: Constant) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with `operands[i]` for tensors and `constant(tag, value)` for the rest.

        Of a size the tag is "size", and the value the size itself.
        """

        def found(tag: str, value: Any) -> Any:
            return constant(tag, self.sizes[value] if tag == "size" else value)

        keywords = {name: with_operands(v, operands, found) for name, v in self.kwargs.items()}
        return [with_operands(item, operands, found) for item in self.args], keywords


def with_operands(tree: Any, operands: Any, constant: Constant) -> Any:
    """One argument, with `operands[place]` for {"tensor": place}."""
    if isinstance(tree, list):
        return [with_operands(item, operands, constant) for item in cast(list[Any], tree)]
    if not isinstance(tree, dict):
        return tree
    ((tag, value),) = cast(dict[str, Any], tree).items()
    return operands[value] if tag == "tensor" else constant(tag, value)
