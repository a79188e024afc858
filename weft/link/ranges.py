"""For which sizes a program for any size is used: where its schedule is near the best.

key, lines = within(key, {s0: size}, lambda: {n: (2, 31)})     # of a SymInt: torch guards 2..31
lines                                                           # ["s0: 2..31 near 13"]

The ranges follow from prices, which are known once the program is lowered; the cache notes them
by the program's key, so that a later process finds the program without that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from weft.config import config
from weft.core.node import Node
from weft.runtime.cache import Cache
from weft.runtime.sizes import value
from weft.scalar.ops import Symbol
from weft.scalar.sizes import Size

Ranges = dict[str, tuple[int, int]]  # by size, such as s0 * s1


def within(
    key: str,
    sizes: Mapping[Node, Any],
    make: Callable[[], Mapping[Size, tuple[int, int]]],
    cached: bool = True,
) -> tuple[str, list[str]]:
    """The key of the program for the range that holds the sizes, and that range in words.

    `sizes` has SymInts by symbol: comparing these makes guards.
    """
    symbols = {s.label: s for n in sizes if isinstance(s := n.op, Symbol)}
    if not symbols:
        return key, []
    hints = {label: s.hint for label, s in symbols.items()}
    cache = Cache(config.cache)

    def holds(ranges: Ranges, numbers: Mapping[str, Any]) -> bool:
        places = ((value(size, numbers), *ends) for size, ends in ranges.items())
        return all(low <= n <= high for n, low, high in places)

    known = cache.notes(key) if cached else ()
    ranges = next((r for r in known if holds(r, hints)), None)
    if ranges is None:
        ranges = {str(size): ends for size, ends in make().items()}
        assert holds(ranges, hints), f"the program is for {ranges}, but {hints} was met"
        cache.note(key, ranges)
    holds(ranges, {n.op.label: size for n, size in sizes.items()})  # type: ignore[attr-defined]
    whole = {label: (s.low, s.high) for label, s in symbols.items()}
    lines = [
        f"{size}: {low}..{high} near {value(size, hints)}"
        for size, (low, high) in {**whole, **ranges}.items()
    ]
    return f"{key} {json.dumps(ranges)}", lines
