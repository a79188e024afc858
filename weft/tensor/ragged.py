"""The op of runs: folds of consecutive elements, from where each begins to where the next one does.

r = runs{sum, axis=0}(base, starts, x)   # r[i] = base[i] + x[starts[i]] + ... of x[starts[i + 1]]
"""

from typing import Any

import numpy as np

from weft.core.node import Op, op, require
from weft.core.types import TensorType, i64
from weft.scalar.monoid import Monoid
from weft.scalar.ops import checked_index

UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "product": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@op("runs")
class Runs(Op):
    """Fold runs of elements along an axis: bags and segments, whose lengths are data.

    r = runs{sum, axis=0}(base, starts, x)   base: f32[5,32], starts: i64[6], x: f32[9,32] -> base's
    out[.., i, ..] combines base[.., i, ..] with x[.., starts[i]:starts[i + 1], ..]. IndexOutOfRange
    where `starts` falls, or leaves the axis of x.
    """

    monoid: Monoid
    axis: int

    def infer(self, base: TensorType, starts: TensorType, x: TensorType) -> TensorType:
        sizes = zip(base.shape, x.shape, strict=False)
        fits = base.rank == x.rank and 0 <= self.axis < base.rank and base.dtype == x.dtype
        fits = fits and all(a == b for d, (a, b) in enumerate(sizes) if d != self.axis)
        fits = fits and starts.dtype is i64 and starts.shape == (base.shape[self.axis] + 1,)
        require(fits and self.monoid.name in UFUNCS, f"runs of {x} from {starts} into {base}")
        return TensorType(base.dtype, base.shape)

    def evaluate(self, base: Any, starts: Any, x: Any) -> Any:
        n = x.shape[self.axis] + 1
        checked_index.evaluate(starts, n)
        checked_index.evaluate(np.diff(starts), n)
        place = list(np.indices(x.shape, sparse=True))
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        place[self.axis] = rows.reshape([-1 if d == self.axis else 1 for d in range(x.ndim)])
        out, inside = base.copy(), np.arange(starts[0], starts[-1])
        UFUNCS[self.monoid.name].at(out, tuple(place), x.take(inside, self.axis))
        return out
