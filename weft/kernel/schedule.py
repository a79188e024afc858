"""The passes from a nest with loops over threads to the program of one thread, in order.

for name, step in GPU_THREADS: kernel = step(kernel, target)
"""

from __future__ import annotations

from collections.abc import Callable

from weft.kernel.own_elements import own_elements
from weft.kernel.place_barriers import place_barriers
from weft.kernel.spread_threads import spread_threads
from weft.kernel.widen_accesses import widen_accesses
from weft.scalar.nest import Kernel
from weft.targets.gpu import GPU

GPU_THREADS: tuple[tuple[str, Callable[[Kernel, GPU], Kernel]], ...] = (
    ("001_spread_threads", spread_threads),
    ("002_own_elements", own_elements),
    ("003_widen_accesses", widen_accesses),
    ("004_place_barriers", place_barriers),
)
