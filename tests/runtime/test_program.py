"""Hand-written kernels run through launch specs: calls, arena, externs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest
import torch

from weft.core.errors import CompilerError, IndexOutOfRange, VerifyError, WeftError
from weft.library.calls import encode
from weft.runtime import Buffer, Call, Extern, Program, ProgramSpec, build, load
from weft.runtime.threads import load_table, openmp_symbols
from weft.runtime.toolchain import Toolchain

N = 256
ROW = ((16, 16), (16, 1))


def pointwise(symbol: str, expression: str, arity: int = 1) -> str:
    """C for out[i] = expression of x[i], y[i], over 256 floats."""
    inputs = "".join(f"const float *{'xyz'[i]}, " for i in range(arity))
    return f"""#include "weft.h"
void {symbol}({inputs}float *out) {{
    for (int i = 0; i < {N}; i++) out[i] = {expression};
}}
"""


SOURCES = {
    "add": pointwise("add", "x[i] + y[i]", 2),
    "twice": pointwise("twice", "2 * x[i]"),
    "next": pointwise("next", "x[i] + 1"),
}


def buffer(name: str, kind: str, index: int = 0, **rest: object) -> Buffer:
    return Buffer(name, "f32", *ROW, kind, index, **rest)  # type: ignore[arg-type]


def make(tools: Toolchain, buffers: list[Buffer], steps: list, outputs: list, **rest: object):
    used = {s.symbol for s in steps if isinstance(s, Call)}
    sources = {name: text for name, text in SOURCES.items() if name in used}
    return build(
        ProgramSpec(tuple(buffers), tuple(steps), tuple(outputs)),
        sources,
        tools,
        **rest,  # type: ignore[arg-type]
    )[0]


def chain(tools: Toolchain, **rest: object) -> Program:
    """2 * (x + y) + 1 through two temporaries, and the sum itself."""
    buffers = [
        buffer("x", "input", 0),
        buffer("y", "input", 1),
        buffer("sum", "output"),
        buffer("double", "temp"),
        buffer("out", "output"),
    ]
    steps = [
        Call("add", ("x", "y", "sum")),
        Call("twice", ("sum", "double")),
        Call("next", ("double", "out")),
    ]
    return make(tools, buffers, steps, ["out", "sum"], **rest)


def test_chain_is_one_native_call(tools: Toolchain) -> None:
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    program = chain(tools)
    out, total = program.run([x, y])
    assert len(program.segments) == 1
    assert program.arena_bytes == 1024
    torch.testing.assert_close(total, x + y)
    torch.testing.assert_close(out, 2 * (x + y) + 1)


def test_every_call_allocates_its_outputs(tools: Toolchain) -> None:
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    program = chain(tools)
    first = program.run([x, y])[0]
    kept = first.clone()
    program.run([x + 1, y])
    assert torch.equal(first, kept)


def test_a_call_without_python_text(tools: Toolchain) -> None:
    """Outputs in the order of the spec, whichever is written first; run by text where it has to."""
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    direct = chain(tools).run.direct
    for _ in range(3):
        out, total = direct(x, y)
        torch.testing.assert_close(total, x + y)
        torch.testing.assert_close(out, 2 * (x + y) + 1)
    with pytest.raises(TypeError, match="fewer tensors"):
        direct(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        torch.testing.assert_close(direct(x, y)[1], x + y)
    assert "weft::add" in {event.key for event in profiled.key_averages()}
    assert sys.getrefcount(x) == sys.getrefcount(y) == 2


def test_a_fault_of_a_call_without_python_text(tools: Toolchain) -> None:
    direct, x = checked_program(tools).run.direct, torch.ones(16, 16)
    for wrong in (False, True, False, True):
        x[3, 3] = 2 if wrong else 1
        with pytest.raises(IndexOutOfRange) if wrong else nullcontext():
            assert (direct(x)[0] == 4).all()


def test_profile_times_every_step(tools: Toolchain) -> None:
    program = chain(tools)
    steps = program.profile([torch.zeros(16, 16), torch.zeros(16, 16)])
    assert [name for name, _ in steps] == ["add", "twice", "next"]
    assert all(0 <= time < 1e5 for _, time in steps)


def test_an_input_is_returned_as_it_is(tools: Toolchain) -> None:
    buffers = [buffer("x", "input", 0), buffer("out", "output")]
    program = make(tools, buffers, [Call("twice", ("x", "out"))], ["x", "out"])
    x = torch.randn(20, 16)[4:]
    same, out = program.run([x])
    assert same is x
    assert torch.equal(out, 2 * x)


def test_a_kernel_writes_an_input(tools: Toolchain) -> None:
    steps = [Call("next", ("x", "x"))]
    program = make(tools, [buffer("x", "input", 0)], steps, [])
    x = torch.zeros(16, 16)
    assert program.run([x]) == ()
    assert torch.equal(x, torch.ones(16, 16))


def sort_program(tools: Toolchain, **rest: object) -> Program:
    """sort(x + x) along rows, between kernels."""
    buffers = [
        buffer("x", "input", 0),
        buffer("double", "temp"),
        buffer("sorted", "temp"),
        Buffer("order", "i64", *ROW, "output"),
        buffer("out", "output"),
    ]
    steps = [
        Call("twice", ("x", "double")),
        Extern("aten.sort.default", ({"tensor": "double"}, 1), {}, ("sorted", "order")),
        Call("next", ("sorted", "out")),
    ]
    return make(tools, buffers, steps, ["out", "order"], **rest)


def test_extern_between_kernels(tools: Toolchain) -> None:
    x = torch.randn(16, 16)
    program = sort_program(tools)
    with torch.inference_mode():
        program.run([x])
    out, order = program.run([x.requires_grad_()])
    values, indices = torch.sort(2 * x, 1)
    assert len(program.segments) == 2
    assert program.arena_bytes == 1024  # the sorted values are torch's own memory
    assert not out.requires_grad
    torch.testing.assert_close(out, values + 1)
    assert torch.equal(order, indices)
    assert [name for name, _ in program.profile([x])] == ["twice", "aten.sort.default", "next"]


def test_extern_view_of_a_temporary_is_copied(tools: Toolchain) -> None:
    """aten.t returns a view: bound as it is, the next temporary would overwrite it."""
    turned = Buffer("turned", "f32", (16, 16), (1, 16), "output")
    buffers = [buffer("x", "input", 0), buffer("a", "temp"), turned, buffer("b", "temp")]
    steps = [
        Call("twice", ("x", "a")),
        Extern("aten.t.default", ({"tensor": "a"},), {}, ("turned",)),
        Call("next", ("x", "b")),
    ]
    program = make(tools, buffers, steps, ["turned"])
    x = torch.randn(16, 16)
    assert program.arena_bytes == 1024
    assert torch.equal(program.run([x])[0], 2 * x.t())


def test_extern_mutates_and_writes_what_exists(tools: Toolchain) -> None:
    buffers = [buffer("x", "input", 0), buffer("a", "temp"), buffer("out", "output")]
    steps = [
        Call("twice", ("x", "a")),
        Extern("aten.add_.Scalar", ({"tensor": "a"}, 1), {}, (None,)),
        Extern("aten.neg.default", ({"tensor": "a"},), {}, ("x",)),
        Call("next", ("a", "out")),
    ]
    program = make(tools, buffers, steps, ["out"])
    x = torch.ones(16, 16)
    assert torch.equal(program.run([x])[0], torch.full((16, 16), 4.0))
    assert torch.equal(x, torch.full((16, 16), -3.0))


def test_extern_of_another_shape_is_an_error(tools: Toolchain) -> None:
    steps = [Extern("aten.sum.default", ({"tensor": "x"},), {}, ("out",))]
    buffers = [buffer("x", "input", 0), buffer("out", "output")]
    program = make(tools, buffers, steps, ["out"])
    with pytest.raises(WeftError, match="launch spec says"):
        program.run([torch.ones(16, 16)])


def test_extern_arguments_round_trip(tools: Toolchain) -> None:
    tree = encode(
        ["x", [2, None, True], torch.float64, torch.device("cpu"), float("-inf"), "none"],
        lambda value: {"tensor": value} if value == "x" else None,
    )
    assert json.loads(json.dumps(tree)) == tree
    kwargs = encode(torch.float64, lambda value: None)
    steps = [
        Extern("aten.sum.dim_IntList", (tree[0], [1], True), {"dtype": kwargs}, ("s",)),
        Extern("aten.clamp.default", ({"tensor": "s"}, tree[4], 0.0), {}, ("out",)),
    ]
    column = ((16, 1), (1, 1))
    buffers = [
        buffer("x", "input", 0),
        Buffer("s", "f64", *column, "temp"),
        Buffer("out", "f64", *column, "output"),
    ]
    program = make(tools, buffers, steps, ["out"])
    x = torch.randn(16, 16)
    assert torch.equal(program.run([x])[0], x.sum(1, True, dtype=torch.float64).clamp(max=0))


def test_spec_round_trip(tools: Toolchain) -> None:
    for program in (chain(tools), sort_program(tools)):
        tree = json.loads(json.dumps(program.spec.to_json()))
        assert ProgramSpec.from_json(tree) == program.spec


def test_load_in_another_process_compiles_nothing(tools: Toolchain) -> None:
    sort_program(tools, key="sort", extra={"kernels": 2})
    load_table(tools, openmp_symbols())  # that of this process may come from another cache
    script = f"""
import torch
from pathlib import Path
from weft.runtime import compiler, load
from weft.runtime.toolchain import open_toolchain
tools = open_toolchain(Path({str(tools.cache.root)!r}))
def refuse(*args): raise SystemExit("compiled")
compiler.Compiler.compile = refuse
compiler.Compiler.link = refuse
program, extra = load("sort", tools)
assert extra == {{"kernels": 2}}, extra
x = torch.randn(16, 16)
assert torch.equal(program.run([x])[0], torch.sort(2 * x, 1)[0] + 1)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    assert load("never built", tools) is None


def test_concurrent_calls_have_arenas_of_their_own(tools: Toolchain) -> None:
    y = torch.zeros(16, 16)
    program = chain(tools)
    calls = (program.run.direct, lambda *given: program.run(given))
    wrong: list[float] = []

    def work(value: float) -> None:
        x = torch.full((16, 16), value)
        for turn in range(4000):
            if not torch.equal(calls[turn % 2](x, y)[0], 2 * x + 1):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


CHECKED = """#include "weft.h"
#define WEFT_LANES 8
#include "weft_math.h"
static void body(void *args, i64 begin, i64 end, int worker) {
    float **p = args;
    for (i64 i = 8 * begin; i < 8 * end; i += 8) {
        i64x8 found = cast_f32_i64x8(load_f32x8(p[0] + i)), limit = splat_i64x8(3);
        store_f32x8(p[1] + i, cast_i64_f32x8(checked_index_i64x8(found, limit)));
    }
}
void checked(float *x, float *out) {
    float *args[] = {x, out};
    weft_for_checked(32, 1, body, args);
}
"""


def checked_program(tools: Toolchain) -> Program:
    """x + 1, where nothing in x is 3 or more; then twice that."""
    buffers = [buffer("x", "input"), buffer("a", "temp"), buffer("b", "temp")]
    check = Call("checked", ("a", "b"), "line 7")
    steps = [Call("next", ("x", "a")), check, Call("twice", ("b", "out"))]
    spec = ProgramSpec((*buffers, buffer("out", "output")), tuple(steps), ("out",))
    return build(spec, {**SOURCES, "checked": CHECKED}, tools)[0]


def test_a_fault_is_of_the_call_that_meets_it(tools: Toolchain) -> None:
    """From several threads at once, on workers that they share."""
    program = checked_program(tools)
    assert ProgramSpec.from_json(json.loads(json.dumps(program.spec.to_json()))) == program.spec
    assert len(program.profile([torch.ones(16, 16)])) == 3
    wrong: list[object] = []

    def work(at: int) -> None:
        x = torch.ones(16, 16)
        x.view(-1)[at * 85] = 2 if at else 1
        for _ in range(1000):
            try:
                right = bool((program.run([x])[0] == 4).all()) and at == 0
            except IndexOutOfRange as error:
                right = at > 0 and error.where == "line 7"
            if not right:
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_only_programs_with_checks_ask_for_faults(tools: Toolchain) -> None:
    assert "if fault := segment0(at, inputs, fresh, threads()):" in checked_program(tools).text
    assert "fault" not in chain(tools).text


def test_huge_arena(tools: Toolchain) -> None:
    shape = ((2048, 1024), (1024, 1))
    buffers = (
        Buffer("x", "f32", *shape, "input", 0),
        Buffer("a", "f32", *shape, "temp"),
        Buffer("out", "f32", *shape, "output"),
    )
    extern = Extern("aten.neg.default", ({"tensor": "a"},), {}, ("out",))
    copy = f"""#include <string.h>
void copy(const float *x, float *out) {{ memcpy(out, x, {2048 * 1024 * 4}); }}
"""
    program, _ = build(
        ProgramSpec(buffers, (Call("copy", ("x", "a")), extern), ("out",)),
        {"copy": copy},
        tools,
    )
    x = torch.randn(2048, 1024)
    assert program.arena_bytes == 8 << 20
    assert torch.equal(program.run([x])[0], -x)


def test_one_key_of_two_programs(tools: Toolchain) -> None:
    """As of a program for any size, whose schedule is for those that a process meets first."""
    x = torch.randn(16, 16)

    def other() -> Program:
        buffers = [buffer("x", "input"), buffer("unused", "input", 1), buffer("out", "output")]
        return make(tools, buffers, [Call("next", ("x", "out"))], ["out"], key="the same")

    first = chain(tools, key="the same")
    assert [torch.equal(y, 2 * (x + x) + 1) for y in other().run([x, x])] == [True, False]
    shutil.rmtree(first.path.parent)  # as `weft cache` does, and the limit of its size
    second = other()
    assert torch.equal(second.run([x, x])[0], x + 1)
    assert torch.equal(first.run([x, x])[1], x + x)


def test_refused_source_is_kept(tools: Toolchain) -> None:
    spec = ProgramSpec((buffer("x", "input"),), (Call("bad", ("x",)),), ())
    with pytest.raises(CompilerError, match=r"refused a generated file: .*error: ") as caught:
        build(spec, {"bad": "void bad(void *x) { oops(; }\n"}, tools)
    assert caught.value.where is not None
    with open(caught.value.where) as kept:
        assert "oops" in kept.read()


@pytest.mark.parametrize(
    ("buffers", "steps", "outputs", "sentence"),
    [
        ([buffer("x", "input"), buffer("x", "temp")], [], [], "two buffers are named x"),
        ([], [Call("f", ("x",))], [], "step f names the unknown buffer x"),
        ([buffer("x", "temp")], [], ["x"], "output x is a temp"),
    ],
)
def test_invalid_spec(buffers: list, steps: list, outputs: list, sentence: str) -> None:
    with pytest.raises(VerifyError, match=sentence):
        ProgramSpec(tuple(buffers), tuple(steps), tuple(outputs))
