"""Arguments of library calls: JSON, which every level below torch carries.

decode_call('[{"tensor": 0}, 2, {"dtype": "float16"}]', [x], leaf)
                      # [x, 2, leaf("dtype", "float16")] and the keyword arguments, here {}
What a tag stands for is the library's business: library/calls.py has torch's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

Leaf = Callable[[str, Any], Any]  # the object that a tag and its value stand for


def decode(tree: Any, tensors: Any, leaf: Leaf) -> Any:
    """An argument again, with `tensors[place]` for its tensors and `leaf` for other objects."""
    if isinstance(tree, list):
        return [decode(item, tensors, leaf) for item in cast(list[Any], tree)]
    if not isinstance(tree, dict):
        return tree
    ((tag, value),) = cast(dict[str, Any], tree).items()
    return tensors[value] if tag == "tensor" else leaf(tag, value)


def decode_call(text: str, tensors: Sequence[Any], leaf: Leaf) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of {"args": [...], "kwargs": {...}}, or of only the list."""
    given = json.loads(text)
    tree: dict[str, Any] = {"args": given} if isinstance(given, list) else given
    keywords = {k: decode(v, tensors, leaf) for k, v in tree.get("kwargs", {}).items()}
    return decode(tree.get("args", []), tensors, leaf), keywords
