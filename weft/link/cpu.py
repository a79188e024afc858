"""A program for a CPU: its C text compiled, loaded, and kept in the cache.

linked = link(emitted, writes, constants, key)      # relink(key) finds it the next time
linked.program.run(tensors)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from weft import runtime
from weft.config import config
from weft.link.program import Emitted, Linked, described, make_spec
from weft.runtime.toolchain import Toolchain, open_toolchain


@cache
def tools() -> Toolchain:
    """The C compiler and the cache; CompilerError or CacheError when there is none."""
    return open_toolchain(config.cache)


def relink(key: str) -> Linked | None:
    """The program made under that key before, if the cache still has it."""
    found = runtime.load(key, tools())
    return None if found is None else Linked(found[0], found[1], True)


def link(
    emitted: Emitted, writes: Mapping[int, int], constants: Collection[int], key: str | None
) -> Linked:
    """Compile and load. `writes` says which outputs go into which inputs instead of out.

    `constants` are the inputs that seldom change: kernels of these alone run once.
    """
    spec = make_spec(emitted, writes, constants)
    symbols = (emitted.symbols[k.name] for k in emitted.program.kernels)
    needed = {symbol: emitted.sources[symbol] for symbol in symbols}
    extra = described(emitted, constants)
    return Linked(*runtime.build(spec, needed, tools(), key=key, extra=extra), False)
