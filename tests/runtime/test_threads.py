"""weft_for: chunks, thread counts, nesting, forks, and the one pool shared with torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from weft.driver import compile_text
from weft.runtime import Buffer, Call, Program, ProgramSpec, build
from weft.runtime.layout import lay_out
from weft.runtime.threads import openmp_symbols
from weft.runtime.toolchain import Toolchain

SIZE = 1000003
FLAT = """#include "weft.h"
typedef struct { const float *x; float *out; int *worker; } args;
static void body(void *given, int64_t begin, int64_t end, int worker) {
    args *a = given;
    float *scratch = weft_scratch(64);
    scratch[0] = 1;
    for (int64_t i = begin; i < end; i++) {
        a->out[i] = a->x[i] + scratch[0];
        a->worker[i] = worker;
    }
}
void run(const float *x, float *out, int *worker) {
    args a = {x, out, worker};
    weft_for(1000003, 1000, body, &a);
}
"""
# The kernel is named `run`, the inner loop covers 1000 elements for each outer iteration.
NESTED = """#include "weft.h"
typedef struct { const float *x; float *out; int *worker; int64_t row; } args;
static void inner(void *given, int64_t begin, int64_t end, int worker) {
    args *a = given;
    for (int64_t i = begin; i < end; i++) {
        a->out[a->row * 1000 + i] = a->x[a->row * 1000 + i] + 1;
        a->worker[a->row * 1000 + i] = worker;
    }
}
static void outer(void *given, int64_t begin, int64_t end, int worker) {
    for (int64_t row = begin; row < end; row++) {
        args a = *(args *)given;
        a.row = row;
        weft_for(row < 1000 ? 1000 : 3, 1, inner, &a);
    }
}
void run(const float *x, float *out, int *worker) {
    args a = {x, out, worker, 0};
    weft_for(1001, 1, outer, &a);
}
"""
pools = pytest.mark.parametrize("openmp", [True, False], ids=["torch's pool", "own pool"])


@pytest.fixture(autouse=True)
def thread_count() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def make(tools: Toolchain, text: str, openmp: bool) -> Program:
    """out = x + 1, and which worker wrote each element."""
    buffers = (
        Buffer("x", "f32", (SIZE,), (1,), "input", 0),
        Buffer("out", "f32", (SIZE,), (1,), "output"),
        Buffer("worker", "i32", (SIZE,), (1,), "output"),
    )
    steps = (Call("run", ("x", "out", "worker")),)
    spec = ProgramSpec(buffers, steps, ("out", "worker"))
    text = f"// one library is bound to one pool: {openmp}\n{text}"
    return Program(lay_out(spec), build(spec, {"run": text}, tools)[0].path, tools, openmp=openmp)


@pools
@pytest.mark.parametrize("count", [1, 2, 5])
def test_static_chunks_in_order(tools: Toolchain, openmp: bool, count: int) -> None:
    program = make(tools, FLAT, openmp)
    x = torch.randn(SIZE)
    torch.set_num_threads(count)
    for _ in range(20):
        out, worker = program.run([x])
        assert torch.equal(out, x + 1)
        assert torch.equal(worker, worker.sort()[0])
    sizes = worker.bincount()
    assert len(sizes) == count
    assert sizes.max() - sizes.min() <= 1


@pools
def test_nested_loops_run_inline(tools: Toolchain, openmp: bool) -> None:
    program = make(tools, NESTED, openmp)
    x = torch.randn(SIZE)
    torch.set_num_threads(2)
    out, worker = program.run([x])
    assert torch.equal(out, x + 1)
    assert not worker.any()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_torch_threads_are_used(tools: Toolchain) -> None:
    if openmp_symbols() is None:
        pytest.skip("this torch has no OpenMP of the kind weft shares")
    program = make(tools, FLAT, openmp=True)
    x = torch.randn(SIZE)
    torch.set_num_threads(3)
    x.add(1)
    before = set(os.listdir("/proc/self/task"))
    for _ in range(5):
        program.run([x])
        x.add(1)
    assert set(os.listdir("/proc/self/task")) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_own_pool_after_a_fork(tools: Toolchain) -> None:
    program = make(tools, FLAT, openmp=False)
    x = torch.zeros(SIZE)
    torch.set_num_threads(2)
    program.run([x])
    child = os.fork()
    if child == 0:
        out, worker = program.run([x])  # no torch kernel here: its pool does not survive a fork
        right = out[0].item() == 1 and out[-1].item() == 1 and worker[-1].item() == 1
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_turns_of_a_long_loop() -> None:
    """In C's ints the end and the step, added, are negative."""
    compiled = compile_text("""
program kernel main
input x: i32[1]

kernel k(x: i32[1]) -> y: i32[1]
for p0 in 0..1073742080 by 1073742080:  # free parallel
    in0 = load x[0]
    y[0] = in0

output y
""")
    assert compiled(torch.tensor([7], dtype=torch.int32)).tolist() == [7]
