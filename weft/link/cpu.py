"""A program for a CPU: its C text compiled, loaded, and kept in the cache.

linked = link(emitted, target, writes, constants, key)  # relink(key, target): the next time
linked.program.run(tensors)
"""

from collections.abc import Collection, Mapping
from functools import cache

from weft import runtime
from weft.config import config
from weft.core.collector import collected
from weft.link.in_place import in_place
from weft.link.program import Emitted, Linked, described, make_spec
from weft.runtime.toolchain import Toolchain, open_toolchain
from weft.scalar.nest import Call
from weft.targets.cpu import CPU


@cache
def tools(isa: str) -> Toolchain:
    """The C compiler and the cache; CompilerError or CacheError when there is none."""
    return open_toolchain(config.cache, isa=isa)


def relink(key: str, target: CPU) -> Linked | None:
    """The program made under that key before, if the cache still has it."""
    found = runtime.load(key, tools(target.isa))
    return None if found is None else Linked(found[0], found[1], True)


OVER = "#define WEFT_IN_PLACE\n"  # above a kernel that stores over what it reads: nothing streams


def prepared(
    emitted: Emitted, writes: Mapping[int, int], constants: Collection[int]
) -> tuple[runtime.ProgramSpec, dict[str, str]]:
    """The launch spec, and each kernel's C by symbol, of what `link` is given."""
    named = in_place(emitted, writes)
    spec = make_spec(emitted, writes, constants, named)
    launched = [s for s in emitted.program.each if not isinstance(s, Call)]
    kernels = [(step, emitted.symbols[step.name]) for step in launched]
    needed = {symbol: emitted.sources[symbol] for _, symbol in kernels}
    for step, symbol in kernels:
        written = {named[b.name] for b in step.outputs if b.name in named}
        if written:  # two operands are one in memory
            needed[symbol] = needed[symbol].replace("restrict ", "")
        read = any(b.name in written for b in step.inputs)
        if read and " stream_" in needed[symbol] and not needed[symbol].startswith(OVER):
            needed[symbol] = OVER + needed[symbol]
    return spec, needed


def link(
    emitted: Emitted,
    target: CPU,
    writes: Mapping[int, int],
    constants: Collection[int],
    key: str | None,
) -> Linked:
    """Compile and load. `writes` says which outputs go into which inputs instead of out.

    `constants` are the inputs that seldom change: kernels of these alone run once.
    """
    spec, needed = prepared(emitted, writes, constants)
    extra = described(emitted, constants)
    with collected():  # other threads run while this one waits for the C compiler
        made = runtime.build(spec, needed, tools(target.isa), key=key, extra=extra)
    return Linked(*made, False)
