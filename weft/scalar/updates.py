"""What an update does to its fold: what it folds in, and what the accumulators become.

lifted(Update(total, (x,)))         # (x,): combined with the accumulators
fused(Update(total, (x * y,)))      # Update(total, (x, y)): a sum may take the factors of a product
combined(Update(total, (x, y)))     # (fma(x, y, total),): rounded once
"""

from __future__ import annotations

from dataclasses import replace

from weft.core.node import Node
from weft.core.types import boolean, f32, f64
from weft.scalar.index import function_of
from weft.scalar.monoid import SUM
from weft.scalar.nest import Update
from weft.scalar.ops import apply, constant, fma, multiply, value_of, where

Terms = tuple[Node, ...]


def is_product(update: Update) -> bool:
    """Whether a sum is given the two factors of a product."""
    return update.fold.monoid is SUM and not update.partial and len(update.values) == 2


def fused(update: Update) -> Update:
    """The update by the factors of a product, where a sum adds one."""
    found = _factors(update.values[0]) if update.fold.monoid is SUM else ()
    return replace(update, values=found, partial=False) if len(found) == 2 else update


def _factors(value: Node) -> Terms:
    """Factors of a product of floats; of one under a condition, 0 where it does not hold."""
    if function_of(value) == "multiply" and value.type.dtype in (f32, f64):
        return value.args
    if function_of(value) == "where" and value_of(value.args[2]) == 0:
        condition, product, zero = value.args
        return tuple(apply(where, condition, f, zero) for f in _factors(product))
    return ()


def lifted(update: Update) -> Terms:
    """The carriers that are combined with the accumulators."""
    if is_product(update):
        return (apply(multiply, *update.values),)
    return update.values if update.partial else update.fold.monoid.lift(update.values)


def combined(update: Update) -> Terms:
    """What the accumulators become."""
    if is_product(update):
        return (apply(fma, *update.values, *update.fold.accs),)
    return update.fold.monoid.combine(update.fold.accs, lifted(update))


def guarded(update: Update, condition: Node) -> Update:
    """The update where the condition holds; elsewhere the accumulators stay as they are."""
    assert condition.type.dtype is boolean
    if is_product(update):
        values, none = update.values, tuple(constant(0, v.type.dtype) for v in update.values)
    else:
        values, none = lifted(update), update.fold.monoid.identity(update.fold.dtypes)
    pairs = zip(values, none, strict=True)
    chosen = tuple(apply(where, condition, *pair) for pair in pairs)
    return replace(update, values=chosen, partial=not is_product(update))
