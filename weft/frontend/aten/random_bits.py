"""The row of weft::philox: bits of each element by its place, so that they fuse and are not stored.

philox(seed, 3, [16, 64])      # map{philox}(seed, index{i0 * 64 + i1 + 3 * 2^40}): i64[16,64]
"""

from collections.abc import Sequence

from weft.core.types import row_major
from weft.frontend.aten.table import Row
from weft.library.philox import STREAM
from weft.scalar.ops import philox as bits_of
from weft.tensor.build import Tensor, affine, index_of


def philox(seed: Tensor, stream: int, size: Sequence[int]) -> Tensor:
    place = affine(dict(enumerate(row_major(tuple(size)))), stream << STREAM)
    return bits_of(seed, index_of(size, place))


ROWS: dict[str, Row] = {"weft.philox.default": Row(philox, "stored")}
