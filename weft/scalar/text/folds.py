"""Infers folds from updates: acc0 <- add(acc0, v1) is a sum of v1's dtype.

for a2 in 0..64:  # reduce                         the default: the outermost of the reduce loops
                                                   around the first update declares acc0
for a2 in 0..64:  # reduce into acc0               this loop declares acc0
for a2 in 0..64:  # reduce into sum(acc0: f32x8)   it declares acc0 in full
"""

from dataclasses import replace

from weft.scalar.monoid import MONOIDS
from weft.scalar.nest import Fold, For, Update

# Monoids of one carrier whose combine is one function: acc0 <- add(acc0, v1).
FOLDS = {m.function: m.name for m in MONOIDS.values() if m.function is not None}


def infer_fold(update: Update) -> Fold | None:
    """The fold that an update's labels, monoid and values imply; None when these do not fit."""
    dtypes = tuple(v.type.dtype for v in update.values)
    lanes = max((v.type.lanes for v in update.values), default=1)
    try:
        carriers = dtypes if update.partial else update.fold.monoid.carriers(dtypes)
    except IndexError:
        return None
    return replace(update.fold, dtypes=carriers, lanes=lanes)


def is_default_place(path: tuple[For, ...], parent: For | None) -> bool:
    """Whether path[0] by default declares the fold of an update inside the loops of `path`."""
    return all(f.role != "free" for f in path) and (parent is None or parent.role == "free")
