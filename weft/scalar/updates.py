"""The terms of an update: the carriers it folds in, and the accumulators' new values.

lifted(Update(total, (x,)))         # (x,)
fused(Update(total, (x * y,)))      # Update(total, (x, y)): a sum takes the factors of a product
combined(Update(total, (x, y)))     # (fma(x, y, total),)
"""

from dataclasses import replace

from weft.core.node import Node
from weft.core.types import boolean, f32, f64
from weft.scalar.monoid import SUM, Terms
from weft.scalar.nest import Update
from weft.scalar.ops import apply, constant, fma, function_of, multiply, value_of, where


def is_product(update: Update) -> bool:
    """Whether the update is of a sum, and its values are the two factors of a product."""
    return update.fold.monoid is SUM and not update.partial and len(update.values) == 2


def fused(update: Update) -> Update:
    """The update with a product's factors as its values, where it adds a product to a sum."""
    found = _factors(update.values[0]) if update.fold.monoid is SUM else ()
    return replace(update, values=found, partial=False) if len(found) == 2 else update


def _factors(value: Node) -> Terms:
    """The factors of a product in f32 or f64; () for any other term.

    where(c, x * y, 0) has the factors where(c, x, 0) and where(c, y, 0).
    """
    if function_of(value) == "multiply" and value.type.dtype in (f32, f64):
        return value.args
    if function_of(value) == "where" and value_of(value.args[2]) == 0:
        condition, product, zero = value.args
        return tuple(apply(where, condition, f, zero) for f in _factors(product))
    return ()


def lifted(update: Update) -> Terms:
    """The carriers that the update combines with the accumulators."""
    if is_product(update):
        return (apply(multiply, *update.values),)
    return update.values if update.partial else update.fold.monoid.lift(update.values)


def combined(update: Update) -> Terms:
    """The new values of the accumulators."""
    if is_product(update):
        return (apply(fma, *update.values, *update.fold.accs),)
    monoid = update.fold.monoid
    combine = monoid.combine if update.partial else monoid.append or monoid.combine
    return combine(update.fold.accs, lifted(update))


def guarded(update: Update, condition: Node) -> Update:
    """The update under a condition: where it is off, the accumulators keep their values."""
    assert condition.type.dtype is boolean
    if is_product(update):
        values, none = update.values, tuple(constant(0, v.type.dtype) for v in update.values)
    else:
        values, none = lifted(update), update.fold.monoid.identity(update.fold.dtypes)
    chosen = tuple(apply(where, condition, *pair) for pair in zip(values, none, strict=True))
    return replace(update, values=chosen, partial=not is_product(update))
