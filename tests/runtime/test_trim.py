"""Kernels are compiled with what they use of the headers, and nothing else."""

from __future__ import annotations

from pathlib import Path

from weft.runtime.compiler import find_compiler
from weft.runtime.trim import Library, split

PREPROCESSED = """
typedef float f32;
typedef float f32x16 __attribute__ ((vector_size(sizeof(f32) * 16)));
#pragma push_macro("bool")
extern __attribute__((visibility("hidden"))) int weft_threads;
extern void *memcpy (void *to, const void *from, unsigned long n) __attribute__ ((__nothrow__));
enum { FAULT = 1 };
static const f32 table[2] = {1, 2};
static inline __attribute__((always_inline, unused)) f32 add(f32 a, f32 b) { return a + b; }
static inline f32 total(const f32 *x) {
    f32 r = 0;
#pragma GCC unroll 64
    for (int i = 0; i < 2; i++) { r = add(r, x[i] * table[i]); }
    return r;
}
static inline f32 other(f32x16 x) { return x[0]; }
"""


def test_a_body_gets_what_it_reaches_in_order() -> None:
    library = Library.of(PREPROCESSED)
    names = [name for name, _, _ in library.declarations]
    assert names == ["f32", "f32x16", "", "memcpy", "", "table", "add", "total", "other"]
    text = Library.load(library.dump()).trim("f32 k(f32 *x) { return total(x); }")
    kept = ["typedef float f32;", "weft_threads", "FAULT", "table[2]", "add(f32 a", "total(const"]
    places = [text.index(part) for part in kept]
    assert places == sorted(places)
    assert "\n#pragma GCC unroll 64\n" in text
    assert not any(part in text for part in ("memcpy", "f32x16", "other", "push_macro"))


def test_every_function_of_the_headers_is_found(tmp_path: Path) -> None:
    source = tmp_path / "head.c"
    source.write_text('#include "weft.h"\n#define WEFT_LANES 8\n#include "weft_math.h"\n')
    preprocessed = find_compiler().preprocess(source)
    known = {name for name, _, _ in Library.of(preprocessed).declarations}
    assert {"weft_for", "exp_f32x8", "load_f32x8", "select_f64x8", "store_bf16x8"} <= known
    assert preprocessed.count("always_inline") <= len(known)


def test_only_directives_at_the_top_are_the_head() -> None:
    text = "#include <a.h>\n#define B\nint x;\n#pragma GCC unroll 4\n"
    assert split(text) == ("#include <a.h>\n#define B\n", "int x;\n#pragma GCC unroll 4\n")
