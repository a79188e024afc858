"""The whole ATen table: LOWER["aten.silu.default"] is the row that writes silu in primitives."""

from __future__ import annotations

from weft.frontend.aten import (
    attention,
    contractions,
    convolution,
    factories,
    indexing,
    norms,
    pointwise,
    pooling,
    reductions,
    views,
)
from weft.frontend.aten.table import Row

FAMILIES = (
    *(pointwise, reductions, views, factories, indexing),
    *(contractions, convolution, pooling, norms, attention),
)

LOWER: dict[str, Row] = {name: row for family in FAMILIES for name, row in family.ROWS.items()}
