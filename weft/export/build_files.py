"""What builds an exported model, a Makefile and a CMakeLists.txt, and a program that runs it.

files = build_files("mlp", calls, isas, paths)      # {"Makefile": "...", ...}
"""

from collections.abc import Sequence
from pathlib import Path

from weft.export.code import Isa
from weft.export.traced import Traced
from weft.runtime.compiler import FLAGS, GCC_FLAGS
from weft.scalar.sizes import hint

EXAMPLE = Path(__file__).with_name("example.c")
MARK = "weft-export.txt"  # a folder that has it may be written anew
LEFT_OUT = ("-pipe", "-fPIC", "-Wno-psabi")  # of the flags, what is given otherwise
WARNINGS = "-Wall -Wextra -Wno-psabi"
LIBRARIES = "-lm -ldl"


def build_files(
    name: str, calls: Sequence[Traced], isas: Sequence[Isa], paths: Sequence[str]
) -> dict[str, str]:
    sources = [p for p in paths if p.endswith(".c") and p != EXAMPLE.name]
    return {
        "Makefile": makefile(name, isas, sources),
        "CMakeLists.txt": cmake(name, isas, sources),
        MARK: about(name, calls, isas),
    }


def flags() -> str:
    return " ".join(f for f in FLAGS if f not in LEFT_OUT)


def makefile(name: str, isas: Sequence[Isa], sources: Sequence[str]) -> str:
    march = "\n".join(
        f"build/kernels/{i.name}/%.o: OWN = $(if $(X86),{' '.join(i.flags)})"
        for i in isas
        if i.flags
    )
    return f"""# make: lib{name}.so, lib{name}.a and example. CC, CFLAGS and LDFLAGS as usual.
CC ?= cc
X86 := $(findstring x86_64,$(shell $(CC) -dumpmachine))
GNU := $(findstring Free Software,$(shell $(CC) --version))
FLAGS := {flags()} {WARNINGS} -fPIC -pthread -I. -Iruntime
FLAGS += $(if $(GNU),{" ".join(GCC_FLAGS)})
OBJECTS := {" ".join(f"build/{s.removesuffix('.c')}.o" for s in sources)}

all: lib{name}.so lib{name}.a example

lib{name}.so: $(OBJECTS)
\t$(CC) $(CFLAGS) -shared -pthread -o $@ $^ $(LDFLAGS) {LIBRARIES}

lib{name}.a: $(OBJECTS)
\trm -f $@ && $(AR) rcs $@ $^

example: example.c lib{name}.a
\t$(CC) $(FLAGS) $(CFLAGS) -o $@ $^ $(LDFLAGS) {LIBRARIES}

{march}

build/%.o: %.c
\t@mkdir -p $(@D)
\t$(CC) $(FLAGS) $(OWN) $(CFLAGS) -c $< -o $@

clean:
\trm -rf build lib{name}.so lib{name}.a example

.PHONY: all clean
"""


def cmake(name: str, isas: Sequence[Isa], sources: Sequence[str]) -> str:
    own = "\n".join(
        f"  file(GLOB own kernels/{i.name}/*.c)\n"
        f'  set_source_files_properties(${{own}} PROPERTIES COMPILE_OPTIONS "{";".join(i.flags)}")'
        for i in isas
        if i.flags
    )
    march = f'if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")\n{own}\nendif()\n' if own else ""
    listed = "\n  ".join(sources)
    return f"""# cmake -B build && cmake --build build: {name}, which is static, and {name}_shared.
cmake_minimum_required(VERSION 3.13)
project({name} C)
find_package(Threads REQUIRED)
{march}add_library({name}_objects OBJECT
  {listed})
target_include_directories({name}_objects PRIVATE . runtime)
target_compile_options({name}_objects PRIVATE
  {flags()} {WARNINGS})
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  target_compile_options({name}_objects PRIVATE {" ".join(GCC_FLAGS)})
endif()
set_target_properties({name}_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
foreach(kind STATIC SHARED)
  string(TOLOWER {name}_${{kind}} library)
  add_library(${{library}} ${{kind}} $<TARGET_OBJECTS:{name}_objects>)
  target_include_directories(${{library}} PUBLIC .)
  target_link_libraries(${{library}} PUBLIC Threads::Threads m ${{CMAKE_DL_LIBS}})
  set_target_properties(${{library}} PROPERTIES OUTPUT_NAME {name})
endforeach()
add_library({name} ALIAS {name}_static)
add_executable(example example.c)
target_link_libraries(example {name}_static)
"""


def example(call: Traced) -> str:
    """Example.c for the shapes of the first signature, in terms of `weft`."""
    every = [", ".join(str(hint(n)) for n in t.type.shape) or "0" for t in call.inputs]
    spans = ", ".join(str(hint(t.type.span) * t.type.dtype.bytes + 1) for t in call.inputs) or "0"
    lines = [f"static const int64_t shape{i}[] = {{{n}}};" for i, n in enumerate(every)]
    named = ", ".join(f"shape{i}" for i in range(len(every))) or "0"
    lines.append(f"static const int64_t *const shapes[] = {{{named}}};")
    lines.append(f"static const size_t bytes_of[] = {{{spans}}};")
    return EXAMPLE.read_text().replace("/* SHAPES */", "\n".join(lines))


def about(name: str, calls: Sequence[Traced], isas: Sequence[Isa]) -> str:
    """What is in the folder, for people."""
    lines = [f"{name}: exported by weft for {', '.join(i.name for i in isas)}"]
    for n, call in enumerate(calls):
        lines.append(f"signature {n}: {call.name}")
        lines += [
            f"  input {t.name}: {t.type}" + (" (written)" if t.written else "") for t in call.inputs
        ]
        lines += [f"  output {t.name}: {t.type}" for t in call.outputs]
        lines += [f"  left out: {told}" for told in call.left_out]
    return "\n".join(lines) + "\n"
