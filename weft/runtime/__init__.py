"""Running C: compiler, disk cache, thread pool, memory plan, launch spec and the lean call.

It takes source text and a launch spec (spec.py), never IR. Start reading at program.py.
"""

from weft.runtime.cache import Cache
from weft.runtime.compiler import Compiler, cpu_features, find_compiler
from weft.runtime.plan import Plan, Slot, plan
from weft.runtime.program import Program, build, load
from weft.runtime.spec import Buffer, Call, Extern, ProgramSpec
from weft.runtime.toolchain import Toolchain, open_toolchain

__all__ = [
    "Buffer",
    "Cache",
    "Call",
    "Compiler",
    "Extern",
    "Plan",
    "Program",
    "ProgramSpec",
    "Slot",
    "Toolchain",
    "build",
    "cpu_features",
    "find_compiler",
    "load",
    "open_toolchain",
    "plan",
]
