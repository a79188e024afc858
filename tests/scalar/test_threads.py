"""Nodes stay interned when several threads make them at once."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from weft.core.node import Node
from weft.scalar.ops import apply, axis, constant


def chain(_: int) -> list[Node]:
    terms = [axis("t")]
    for i in range(300):
        terms.append(apply("add", terms[-1], constant(i)))
    return terms


def test_threads_share_nodes() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(chain, range(32)))
    finally:
        sys.setswitchinterval(interval)
    assert all(a is b for other in made for a, b in zip(made[0], other, strict=True))
