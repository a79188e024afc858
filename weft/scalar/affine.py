"""Affine forms of index terms, with which the simplifier reasons.

linear(a0 * 64 + a1 + 3)           # {a0: 64, a1: 1}, 3
Over sizes forms are polynomials, whose atoms may be products: a0 * s1 is one.
"""

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from functools import lru_cache

from weft.core.node import Node
from weft.core.types import ScalarType, i64
from weft.scalar.ops import Axis, Symbol, apply_all, constant, function_of, has_symbol, value_of

Linear = tuple[dict[Node, int], int]  # sum of coefficient * atom, plus a constant

LEAST, GREATEST = -(2**63), 2**63 - 1


@lru_cache(maxsize=1 << 16)
def linear(node: Node) -> Linear:
    """The affine form of a term over atoms: subterms other than +, - and * by a constant.

    a0 * 64 + a1 // 8 + 3 -> {a0: 64, a1 // 8: 1}, 3. Cached: do not change the result.
    """
    name, value = function_of(node), value_of(node)
    if value is not None:
        return {}, int(value)
    if name in ("add", "subtract"):
        return plus(linear(node.args[0]), linear(node.args[1]), 1 if name == "add" else -1)
    if name == "multiply" and any(value_of(a) is not None or has_symbol(a) for a in node.args):
        return times(linear(node.args[0]), linear(node.args[1]))
    return {node: 1}, 0


@lru_cache(maxsize=1 << 16)
def factors(atom: Node) -> tuple[Node, ...]:
    """What an atom is the product of: of a0 * s1, (a0, s1)."""
    if function_of(atom) != "multiply" or not has_symbol(atom):
        return (atom,)
    return (*factors(atom.args[0]), *factors(atom.args[1]))


def product(parts: Iterable[Node]) -> Node:
    """The atom that is the product of others, which have an order."""
    return apply_all("multiply", sorted(parts, key=order))


def times(a: Linear, b: Linear) -> Linear:
    """a * b"""
    total = plus(({}, a[1] * b[1]), (a[0], 0), b[1])
    total = plus(total, (b[0], 0), a[1])
    for (x, k), (y, v) in itertools.product(a[0].items(), b[0].items()):
        total = plus(total, ({product((*factors(x), *factors(y))): k * v}, 0))
    return total


def plus(a: Linear, b: Linear, k: int = 1) -> Linear:
    """a + k * b"""
    total = dict(a[0])
    for atom, v in b[0].items():
        total[atom] = total.get(atom, 0) + k * v
    return {atom: v for atom, v in total.items() if v}, a[1] + k * b[1]


# Comparison -> (order of its operands, constant) of the form in `slack`: lt is y - x - 1.
SIGNS = {"lt": (-1, -1), "le": (-1, 0), "gt": (1, -1), "ge": (1, 0)}


def slack(condition: Node) -> Linear | None:
    """The form that is >= 0 just where an i64 comparison holds: y - x - 1 for x < y; else None."""
    name = function_of(condition)
    if name not in SIGNS or condition.args[0].type != ScalarType(i64):
        return None
    sign, more = SIGNS[name]
    x, y = condition.args[::sign]
    return plus(plus(linear(x), linear(y), -1), ({}, more))


@lru_cache(maxsize=1 << 16)
def order(atom: Node) -> tuple[str, int, str]:
    """A deterministic order of atoms: by least axis label, then depth, then structure."""
    if isinstance(atom.op, Axis | Symbol):
        return atom.op.label, 0, ""
    inner = [order(a) for a in atom.args]
    label = min((o[0] for o in inner if o[0]), default="")
    text = str(atom.op) + "".join(map(str, inner))
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return label, 1 + max((o[1] for o in inner), default=0), digest


def _signed(value: int) -> int:
    """The value wrapped to i64."""
    return (value - LEAST) % 2**64 + LEAST


def from_linear(terms: Mapping[Node, int], offset: int) -> Node:
    """The canonical term of an affine form: largest stride first, the constant last."""
    ordered = sorted(terms.items(), key=lambda t: (-abs(t[1]), order(t[0])))
    parts = [a if k == 1 else apply_all("multiply", (a, constant(_signed(k)))) for a, k in ordered]
    if offset or not parts:
        parts.append(constant(_signed(offset)))
    return apply_all("add", parts)
