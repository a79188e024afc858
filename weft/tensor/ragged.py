"""The ops of runs, consecutive elements from where each run begins to where the next one does.

r = runs{sum, axis=0}(base, starts, x)   # r[i] = base[i] + x[starts[i]] + ... of x[starts[i + 1]]
o = run_of{extent=9}(starts)             # o[k] = the i with starts[i] <= k < starts[i + 1]
"""

from typing import Any

import numpy as np

from weft.core.node import Op, op, require
from weft.core.types import TensorType, i32, i64
from weft.scalar.monoid import Monoid
from weft.scalar.ops import checked_index
from weft.scalar.sizes import is_short

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


@op("run_of")
class RunOf(Op):
    """The number of the run that each element is in, of those outside of all the count of runs.

    o = run_of{extent=9}(starts)    starts: i64[6] -> o: i32[9], whose values are 0 to 5
    IndexOutOfRange where `starts` falls, or leaves 0 to `extent`.
    """

    extent: int

    def infer(self, starts: TensorType) -> TensorType:
        fits = starts.dtype is i64 and starts.rank == 1 and starts.shape[0] > 1
        require(fits and is_short(starts.shape[0]), f"runs of {self.extent} elements from {starts}")
        return TensorType(i32, (self.extent,))

    def evaluate(self, starts: Any) -> Any:
        checked_index.evaluate(starts, self.extent + 1)
        checked_index.evaluate(np.diff(starts), self.extent + 1)
        out = np.full(self.extent, len(starts) - 1, np.int32)
        out[starts[0] : starts[-1]] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return out
