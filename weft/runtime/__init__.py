"""Running C: compiler, disk cache, thread pool, memory plan, launch spec and the lean call.

It takes source text and a launch spec (spec.py), never IR. Start reading at program.py.
"""

from weft.runtime.program import Program, build, load
from weft.runtime.sizes import NUMBERS, SIZES, by_value, number_buffer, size_buffers
from weft.runtime.spec import Buffer, Call, Extern, ProgramSpec

__all__ = [
    "NUMBERS",
    "SIZES",
    "Buffer",
    "Call",
    "Extern",
    "Program",
    "ProgramSpec",
    "build",
    "by_value",
    "load",
    "number_buffer",
    "size_buffers",
]
