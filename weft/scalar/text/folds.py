"""What an update says about its fold, so that most loops need not declare their accumulators.

for a2 in 0..64:  # reduce              declares acc0: the outermost of the reducing loops
    acc0 <- add(acc0, v1)               around its first update; a sum of v1's dtype
for a2 in 0..64:  # reduce into acc0    declared here, because a free loop stands in between
for a2 in 0..64:  # reduce into sum(acc0: f32x8)        declared in full
"""

from __future__ import annotations

from weft.core.node import Node
from weft.scalar.monoid import MONOIDS, Monoid
from weft.scalar.nest import Fold, For, Update

# Monoids of one carrier whose combine is one function: acc0 <- add(acc0, v1).
COMBINE = {m.name: m.function for m in MONOIDS.values() if m.function is not None}
FOLDS = {function: monoid for monoid, function in COMBINE.items()}


def fold_of(
    labels: tuple[str, ...], monoid: Monoid, values: tuple[Node, ...], partial: bool
) -> Fold:
    """The fold that an update of these labels by these values implies."""
    dtypes = tuple(v.type.dtype for v in values)
    lanes = max((v.type.lanes for v in values), default=1)
    return Fold(labels, monoid, dtypes if partial else monoid.carriers(dtypes), lanes)


def infer_fold(update: Update) -> Fold | None:
    """The same, of a statement; None when its values do not fit the monoid."""
    try:
        return fold_of(update.fold.labels, update.fold.monoid, update.values, update.partial)
    except IndexError:
        return None


def is_default_place(path: tuple[For, ...], parent: For | None) -> bool:
    """Whether an update's fold is declared by the outermost loop of `path` around it, untold."""
    return all(f.role != "free" for f in path) and (parent is None or parent.role == "free")
