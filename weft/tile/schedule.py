"""The steps from a loop nest to a scheduled kernel, in order."""

from __future__ import annotations

from collections.abc import Callable

from weft.scalar.nest import Kernel
from weft.targets.cpu import CPU
from weft.tile.passes.block_contraction import block_contraction
from weft.tile.passes.block_sums import block_sums
from weft.tile.passes.collapse_loops import collapse_loops
from weft.tile.passes.parallelize_loops import parallelize_loops
from weft.tile.passes.prefetch_rows import prefetch_rows
from weft.tile.passes.skip_masked import skip_masked
from weft.tile.passes.split_ranges import split_ranges
from weft.tile.passes.split_reduction import split_reduction
from weft.tile.passes.stage_rows import stage_rows
from weft.tile.passes.stage_transposes import stage_transposes
from weft.tile.passes.stream_stores import stream_stores
from weft.tile.passes.vectorize_loops import vectorize_loops

# Order matters: contractions claim their loops before what is left gets a vector axis, and
# threads come after, when the price of a nest is that of its final form. Sums are blocked last:
# their loops no longer have literal lengths.
Step = Callable[[Kernel, CPU], Kernel]
CPU_SCHEDULE: tuple[tuple[str, Step], ...] = (
    ("001_split_ranges", split_ranges),
    ("002_collapse_loops", collapse_loops),
    ("003_block_contraction", block_contraction),
    ("004_split_reduction", split_reduction),
    ("005_stage_rows", stage_rows),
    ("006_stage_transposes", stage_transposes),
    ("007_vectorize_loops", vectorize_loops),
    ("008_parallelize_loops", parallelize_loops),
    ("009_block_sums", block_sums),
    ("010_stream_stores", stream_stores),
    ("011_skip_masked", skip_masked),
    ("012_prefetch_rows", prefetch_rows),
)
