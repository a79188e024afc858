"""A GPU simulator: runs the text of a CUDA kernel on the CPU, and reports its faults and costs.

report = simulate(source, "softmax", grid=16, block=128, args=[x, y, 512])
print(report)

launch.py runs, build.py compiles, report.py says what was found; include/ is the device prelude
of runtime/gpu/ for the CPU, runtime/ the machine (start at simulator.cpp).
"""

from weft.sim.launch import TensorMap, simulate
from weft.sim.report import Access, Fault, SimReport

__all__ = ["Access", "Fault", "SimReport", "TensorMap", "simulate"]
