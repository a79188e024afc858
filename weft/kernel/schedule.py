"""The passes from a nest with loops over threads to the program of one thread, in order.

for name, step in GPU_THREADS: kernel = step(kernel, target)
"""

from collections.abc import Callable

from weft.core.passes import numbered
from weft.scalar.nest import Kernel
from weft.targets.gpu import GPU

GPU_THREADS: tuple[tuple[str, Callable[[Kernel, GPU], Kernel]], ...] = numbered(
    "weft.kernel", "spread_threads", "own_elements", "widen_accesses", "place_barriers"
)
