"""The whole ATen table: LOWER["aten.silu.default"] is the row that writes silu in primitives."""

from importlib import import_module

from weft.frontend.aten.table import Row

FAMILIES = """pointwise reductions views factories indexing scatters bags quantised random_bits
contractions convolution norms attention sorts histograms segments distances resampling adaptive
grids derivatives recurrent ctc"""

LOWER: dict[str, Row] = {}
for family in FAMILIES.split():
    LOWER.update(import_module(f"weft.frontend.aten.{family}").ROWS)
