"""A GPU's blocks as Triton kernels: a fixed part of the corpus, interpreted and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch

import weft
from tests.agree.checks import Disagreement
from tests.agree.inputs import Case, boolean, f32, f64, i64
from tests.agree.test_programs import PROGRAMS
from tests.conformance.triton import TARGET, check, traced
from tests.export.triton_worker import Worker, missing
from weft import driver
from weft.core.errors import UnsupportedOpError, WeftError
from weft.core.passes import PassLog
from weft.export.triton.program import to_triton
from weft.text import parse_program

WHY = missing()
runs = pytest.mark.skipif(WHY is not None, reason=WHY or "")
# Every kind of loop, fold, slab and term; `python -m tests.conformance.triton` runs all.
CHOSEN = """integer_uint8 specials_bf16 powers_f64 running_extremes_ties cross_entropy mlp_bf16
attention_causal call_of_index_fill two_reductions chain_of_matmuls""".split()


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Worker]:
    with Worker("interpret") as worker:
        yield worker


@pytest.fixture(scope="module")
def compiler() -> Iterator[Worker]:
    with Worker("compile") as worker:
        yield worker


def printed(fn: Callable[..., Any], *args: Any, schedule: str = "") -> str:
    """The text for a program of these inputs."""
    graph = traced(Case("program", fn, args))[0].graph
    return driver.lower(graph, driver.Options(TARGET, schedule=schedule), PassLog()).text("triton")


@runs
@pytest.mark.parametrize("case", [c for c in PROGRAMS if c.name in CHOSEN], ids=lambda c: c.name)
def test_triton_gives_what_eager_gives(case: Case, interpreter: Worker, compiler: Worker) -> None:
    assert check(case, interpreter, compiler) > 0


ODD = {
    "none": (lambda x: (x.sum(0), x + 1), f32(0, 5)),
    "no_columns": (lambda x: (x.sum(1), x.relu()), f32(5, 0)),
    "scalar": (lambda x: x.exp(), f32()),
    "long_row": (lambda x: torch.softmax(x, -1), f32(2, 9001)),
    "long_scan": (lambda x: x.cumsum(-1), f32(3, 20_000)),
    "any_of_bool": (lambda x: (x.any(1), x.all(0), ~x), boolean(37, 19)),
    "places_f64": (lambda x: (x.argmax(1), x * 0.1, x.logsumexp(1)), f64(5, 300)),
    "strides": (lambda x: torch.softmax(x.t(), -1), f32(33, 70).t()),
    "large_places": (lambda x: torch.arange(3000) ** 3 + x, i64(1, below=3)),
}  # fmt: skip


@runs
@pytest.mark.parametrize("name", ODD)
def test_odd_shapes(name: str, interpreter: Worker) -> None:
    fn, x = ODD[name]
    check(Case(name, fn, (x,)), interpreter)


@runs
def test_operands_keep_their_parentheses(interpreter: Worker) -> None:
    """Sums and products of floats do not regroup; | of booleans binds less than &, + of numbers."""
    x, y = torch.tensor([1.0, 1e-30]), torch.tensor([1e8, 1e30])
    floats = lambda x, y, z: (x + (y - z), x * (y * z))  # noqa: E731
    check(Case("floats", floats, (x, y, y)), interpreter)
    check(
        Case("quotient", lambda x: x * (torch.arange(20) // 3), (i64(20, below=99),)), interpreter
    )
    flags = tuple(
        torch.tensor(list(bits)) for bits in zip(*product((False, True), repeat=3), strict=True)
    )
    check(Case("bool", lambda x, y, z: (x + y) & z, flags), interpreter)
    words = tuple(torch.arange(n, n + 20, dtype=torch.uint8) for n in (90, 120, 7))
    check(Case("absolute", lambda x, y, z: (x + y).abs() * z, words), interpreter)


SMALL = {
    "floordiv": lambda x: (x // 3 * 100).int(),
    "remainder": lambda x: (x % 5 * 100).int(),
    "fmod": lambda x: (torch.fmod(x, 5) * 100).int(),
    "shift": lambda x: (x << 3).int(),
    "clamp": lambda x: (x.clamp(-5, 7) * 100).int(),
    "power": lambda x: 3 ** x.clamp(0, 5),
}


@runs
@pytest.mark.parametrize("name", SMALL)
def test_small_integers_wrap(name: str, interpreter: Worker, compiler: Worker) -> None:
    """Functions of an i8 and a literal, which Triton takes for an i32, are i8."""
    x = torch.arange(-128, 128, dtype=torch.int8)
    check(Case(name, SMALL[name], (x,)), interpreter, compiler)


RUNS = """program tile runs
input x: f32[16]
input ends: i64[3]

kernel y(x: f32[16], ends: i64[3]) -> y: f32[2]
for a0 in 0..2:  # free grid
    in0 = load ends[a0]
    v0 = checked_index(in0, 17)
    in1 = load ends[a0 + 1]
    v1 = checked_index(in1, 17)
    for a1 in v0..v1:  # reduce
        in2 = load x[a1]
        acc0 <- add(acc0, in2)
    y[a0] = acc0

output y
"""


@runs
def test_a_loop_ends_where_its_data_says(interpreter: Worker) -> None:
    """Ends that are loaded may be less far apart than the most that they may be."""
    x, ends = torch.randn(16), torch.tensor([0, 5, 7])
    (out,) = interpreter(to_triton(parse_program(RUNS)), [x, ends])
    torch.testing.assert_close(out, torch.stack([x[:5].sum(), x[5:7].sum()]))


def test_a_file_has_the_functions_that_it_calls() -> None:
    """Not those that a dropped term calls, or that tl has by the same name."""
    text = printed(lambda x: torch.nn.functional.gelu(x.clamp(min=0)), f32(40))
    assert "\ndef maximum(" in text and "\ndef minimum(" not in text
    assert "\ndef minimum(" not in printed(lambda x: x.clamp(max=3), i64(40, below=9))


@runs
def test_scatters_random_numbers_and_library_calls_run(
    interpreter: Worker, compiler: Worker
) -> None:
    def step(x: torch.Tensor, i: torch.Tensor) -> Any:
        added = torch.zeros(40, 64).index_add(0, i, x)
        return added, torch.linalg.inv(x[:2, :2])

    text = printed(step, f32(2000, 64), i64(2000, below=40))
    assert "tl.atomic_add" in text and "torch.ops.aten.linalg_inv_ex.default" in text
    check(Case("step", step, (f32(2000, 64), i64(2000, below=40))), interpreter, compiler)


@runs
def test_bad_input_is_refused_and_a_bad_index_is_found(interpreter: Worker) -> None:
    text = printed(lambda x, i: x[i], f32(5, 3), i64(4, below=5))
    x, good = torch.randn(5, 3), torch.tensor([0, 4, -5, 2])
    assert torch.equal(interpreter(text, [x, good])[0], x[good])
    with pytest.raises(RuntimeError, match=r"x must be torch.float32 of shape \(5, 3\)"):
        interpreter(text, [torch.randn(3, 5), good])
    with pytest.raises(RuntimeError, match="an index is out of range"):
        interpreter(text, [x, torch.tensor([0, 1, 5, 2])])


@runs
def test_products_of_bf16_are_those_of_bf16(interpreter: Worker, compiler: Worker) -> None:
    """The interpreter's are mended by widening; what Triton compiles multiplies bf16 itself."""
    case = Case("mm", lambda x, y: x @ y, tuple(f32(64, 64).bfloat16() for _ in "xy"))
    check(case, interpreter)
    text = printed(case.fn, *case.args)
    ((size, ttir),) = compiler(text, traced(case)[1])
    assert size > 0 and any("tt.dot" in n and "xbf16>" in n for n in ttir.splitlines())


@runs
def test_the_judge_finds_another_function(interpreter: Worker) -> None:
    case = Case("exp", lambda x: x.exp(), (f32(40),))

    class Wrong(Worker):
        def __init__(self) -> None:
            pass

        def __call__(self, text: str, inputs: Any) -> Any:
            return interpreter(text.replace("tl.exp(", "tl.exp2("), inputs)

    with pytest.raises(Disagreement, match="relative error"):
        check(case, Wrong())


def test_blocks_read_as_a_person_writes_them() -> None:
    softmax = printed(lambda x: torch.softmax(x, -1), f32(8, 500))
    assert softmax.count("tl.load(") == 1 and "a1 = tl.arange(0, 512)" in softmax
    product = printed(lambda x, w: (x @ w).relu(), f32(100, 70), f32(70, 50))
    assert 'acc0, input_precision="ieee")' in product and "tl.program_id(1) * 16" in product
    x = (f32(1, 2, 70, 64).bfloat16(),) * 3
    attention = printed(torch.nn.functional.scaled_dot_product_attention, *x)
    assert attention.count("tl.dot(") == 2 and "acc3_rows = acc3_rows * " in attention
    assert "debug_barrier" not in attention


def test_slabs_with_other_accesses_are_memory_of_the_launch() -> None:
    text = printed(lambda x: x.cumsum(-1), f32(300, 301))
    assert "tl.debug_barrier()" in text and "part0_ptr += tl.program_id(0) * " in text


def test_what_triton_cannot_say_is_one_error() -> None:
    def step(x: torch.Tensor) -> Any:
        return torch.special.airy_ai(x), torch.special.zeta(x, x)

    with pytest.raises(UnsupportedOpError, match=r"(?s)airy_ai of f32; .*zeta of f32"):
        printed(step, f32(4))
    staged = "mm: bind{axis=a0, to=thread}\nmm: split{axis=a2, by=16}\nmm: stage{buffer=x, at=b0}"
    with pytest.raises(UnsupportedOpError, match="a buffer x_s0 inside of loops over threads"):
        printed(lambda x, w: x @ w, f32(65, 33), f32(33, 17), schedule=staged)
    f = weft.compile(lambda x: x + 1).prepare(torch.randn(4))
    with pytest.raises(WeftError, match="choose a target such as cuda:sm_90a"):
        f.ir("triton")
    sizes = weft.compile(lambda x: x + 1, target=TARGET, dynamic=True)
    with pytest.raises(WeftError, match="dynamic=False"):
        sizes.prepare(torch.randn(5, 7)).ir("triton")
