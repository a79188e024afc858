"""The passes from a nest with loops over threads to the program of one thread, in order.

for name, step in GPU_THREADS: kernel = step(kernel, target)
"""

from weft.core.passes import numbered

PASSES = ("spread_threads", "own_elements", "load_matrices", "widen_accesses", "place_barriers")
GPU_THREADS = numbered("weft.kernel", *PASSES)
