"""The cache key of a program, and its lookup: a digest of all that decides the emitted code.

key = program_key(graph, options, target, layouts)
linked = relink(key, place, target, False)      # None where the cache has it no longer
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import torch

from weft.core.node import Graph, Node
from weft.link import cpu, gpu
from weft.link.program import Linked
from weft.scalar.ops import Symbol
from weft.scalar.resize import sizes_of
from weft.targets.cpu import CPU
from weft.targets.gpu import GPU


def bounds_of(symbol: Node) -> tuple[Any, ...]:
    """What of a size decides the code: not its hint, so that one entry serves all sizes."""
    s = symbol.op
    assert isinstance(s, Symbol)
    return s.label, s.low, s.high, s.divisor


@cache
def compiler_digest() -> str:
    """A digest of weft's own files: a program that another version compiled is not used."""
    root = Path(__file__).parent.parent
    files = sorted(root.rglob("*.py"))
    stamps = [(str(f.relative_to(root)), f.stat().st_mtime_ns, f.stat().st_size) for f in files]
    return hashlib.sha256(repr(stamps).encode()).hexdigest()


def program_key(graph: Graph, *facts: Any) -> str:
    """A digest of a torch-level graph, whatever its title, and of all that decides its code."""
    number: dict[Any, int] = {}
    lines: list[str] = []
    for node in graph.nodes():
        number[node] = len(number)
        lines.append(f"{node.op!r} {[number[a] for a in node.args]} {graph.names.get(node)}")
    lines.append(repr([number[o] for o in graph.outputs]))
    lines += map(repr, (*facts, *map(bounds_of, sizes_of(graph).values())))
    lines.append(compiler_digest())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def relink(key: str, place: torch.device, target: CPU | GPU, simulate: bool) -> Linked | None:
    """The program that was linked under that key before, if the cache still has it."""
    if isinstance(target, CPU):
        return cpu.relink(key, target)
    return gpu.relink(key, place, target, simulate)
