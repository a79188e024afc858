"""What builds an exported model: a Makefile, a CMakeLists.txt, and a program that runs it.

files = build_files("mlp", calls, isas, paths)      # {"Makefile": "...", ...}
"""

from collections.abc import Sequence

from weft.export.code import Isa
from weft.export.traced import Tensor, Traced
from weft.runtime.compiler import FLAGS, GCC_FLAGS
from weft.scalar.sizes import hint

MARK = "weft-export.txt"  # a folder that has it may be written anew
LEFT_OUT = ("-pipe", "-fPIC", "-Wno-psabi")  # of the flags, what is given otherwise
WARNINGS = "-Wall -Wextra -Wno-psabi"


def build_files(
    name: str, calls: Sequence[Traced], isas: Sequence[Isa], paths: Sequence[str]
) -> dict[str, str]:
    sources = [p for p in paths if p.endswith(".c")]
    return {
        "Makefile": makefile(name, isas, sources),
        "CMakeLists.txt": cmake(name, isas, sources),
        "example.c": example(name, calls[0]),
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
\t$(CC) $(CFLAGS) -shared -pthread -o $@ $^ $(LDFLAGS) -lm

lib{name}.a: $(OBJECTS)
\trm -f $@ && $(AR) rcs $@ $^

example: example.c lib{name}.a
\t$(CC) $(FLAGS) $(CFLAGS) -o $@ $^ $(LDFLAGS) -lm

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
    return f"""# cmake -B build && cmake --build build: the targets {name} (static) and {name}_shared.
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
  target_link_libraries(${{library}} PUBLIC Threads::Threads m)
  set_target_properties(${{library}} PROPERTIES OUTPUT_NAME {name})
endforeach()
add_library({name} ALIAS {name}_static)
add_executable(example example.c)
target_link_libraries(example {name}_static)
"""


def example(name: str, call: Traced) -> str:
    """A program that runs the first signature on zeros, and prints the beginning of its outputs."""
    lines = [
        f"static const int64_t shape{i}[] = {{{', '.join(str(hint(n)) for n in t.type.shape) or '0'}}};"
        for i, t in enumerate(call.inputs)
    ]
    named = ", ".join(f"shape{i}" for i in range(len(lines))) or "0"
    spans = ", ".join(str(hint(t.type.span) * t.type.dtype.bytes + 1) for t in call.inputs) or "0"
    return f"""/* Runs {name} on zeros and prints the first numbers of each output.

     make && ./example weights.safetensors */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

{chr(10).join(lines)}
static const int64_t *const shapes[] = {{{named}}};
static const size_t bytes[] = {{{spans}}};

/* Zeroed memory for a tensor of that shape and these strides. */
static void *zeros(const {name}_tensor *t, const int64_t *shape, const int64_t *strides) {{
    int64_t span = 1;
    for (int d = 0; d < t->rank; d++) span += (shape[d] - 1) * strides[d];
    return calloc(span > 0 ? (size_t)span : 1, (size_t)t->item_bytes);
}}

static void print(const {name}_tensor *t, const void *data, const int64_t *shape) {{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= shape[d];
    printf("%s %s%s =", t->name, t->dtype, t->extents);
    for (int i = 0; i < count && i < 4; i++)
        if (!strcmp(t->dtype, "f32"))
            printf(" %g", ((const float *)data)[i]);
        else if (!strcmp(t->dtype, "i64"))
            printf(" %lld", (long long)((const int64_t *)data)[i]);
        else
            for (int k = 0; k < t->item_bytes; k++)
                printf("%s%02x", k ? "" : " ", ((const unsigned char *)data)[i * t->item_bytes + k]);
    puts("");
}}

int main(int count, char **arguments) {{
    char error[512];
    {name}_model *m = {name}_open(count > 1 ? arguments[1] : "weights.safetensors", error, sizeof error);
    if (!m) return puts(error), 1;
    const {name}_signature *s = {name}_signature_of(0);
    {name}_array *in = calloc((size_t)s->inputs + 1, sizeof *in);
    {name}_array *out = calloc((size_t)s->outputs + 1, sizeof *out);
    for (int i = 0; i < s->inputs; i++) {{
        in[i].shape = shapes[i];
        in[i].data = calloc(bytes[i], 1);
    }}
    int64_t shape[16], strides[16];
    int wrong = 0;
    for (int i = 0; i < s->outputs && !wrong; i++) {{
        wrong = {name}_shape(0, in, i, shape, strides, error, sizeof error);
        if (!wrong) out[i].data = zeros(s->output + i, shape, strides);
    }}
    wrong = wrong || {name}_run(m, 0, in, out, 0, error, sizeof error);
    for (int i = 0; i < s->outputs && !wrong; i++) {{
        {name}_shape(0, in, i, shape, strides, error, sizeof error);
        print(s->output + i, out[i].data, shape);
    }}
    if (wrong) puts(error);
    {name}_close(m);
    return wrong;
}}
"""


def about(name: str, calls: Sequence[Traced], isas: Sequence[Isa]) -> str:
    """What is in the folder, for people."""
    lines = [f"{name}: exported by weft for {', '.join(i.name for i in isas)}"]
    for n, call in enumerate(calls):
        lines.append(f"signature {n}: {call.name}")
        lines += [f"  input {t.name}: {t.type}" + (" (written)" if t.written else "") for t in call.inputs]
        lines += [f"  output {t.name}: {t.type}" for t in call.outputs]
        lines += [f"  left out: {told}" for told in call.left_out]
    return "\n".join(lines) + "\n"
