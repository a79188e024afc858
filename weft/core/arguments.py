"""Arguments of library calls, as every level down to the runtime carries them.

arguments = Arguments.of([{"tensor": 0}, 2, {"dtype": "float16"}])
arguments.bind([x], constant)            # [x, 2, constant("dtype", "float16")], {}
What a tag such as "dtype" stands for is the library's business: library/calls.py has torch's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

Constant = Callable[[str, Any], Any]  # the object that a tag and its value stand for


@dataclass(frozen=True)
class Arguments:
    """Positional and keyword arguments; {"tensor": i} is the i-th operand of the call.

    The text decides what is equal: 1, 1.0 and true differ, as do 0.0 and -0.0.
    """

    text: str  # {"args": [...], "kwargs": {...}}, or only the list
    args: list[Any] = field(init=False, compare=False, repr=False)
    kwargs: dict[str, Any] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        given = json.loads(self.text)
        tree: dict[str, Any] = {"args": given} if isinstance(given, list) else given
        object.__setattr__(self, "args", tree.get("args", []))
        object.__setattr__(self, "kwargs", tree.get("kwargs", {}))

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Arguments:
        """Arguments of trees that JSON can say, in their one spelling."""
        tree = {"args": list(args), "kwargs": dict(kwargs or {})}
        return cls(json.dumps(tree, separators=(",", ":")))

    def bind(self, operands: Any, constant: Constant) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with `operands[i]` for tensors and `constant(tag, value)` for the rest."""
        keywords = {name: with_operands(v, operands, constant) for name, v in self.kwargs.items()}
        return [with_operands(item, operands, constant) for item in self.args], keywords


def with_operands(tree: Any, operands: Any, constant: Constant) -> Any:
    """One argument, with `operands[place]` for {"tensor": place}."""
    if isinstance(tree, list):
        return [with_operands(item, operands, constant) for item in cast(list[Any], tree)]
    if not isinstance(tree, dict):
        return tree
    ((tag, value),) = cast(dict[str, Any], tree).items()
    return operands[value] if tag == "tensor" else constant(tag, value)
