"""Programs for any size (dynamic=True): eager's results at every size, compiled once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import weft
from weft.core.errors import CaptureError, ParseError, VerifyError
from weft.driver import compile_text
from weft.frontend.capture import capture
from weft.options import Options
from weft.text import parse_program, print_program

SIZES = ((5, 7), (6, 9), (13, 4), (64, 5), (3, 70))
Make = Callable[[int, int], tuple[Any, ...]]


def assert_equal(found: Any, wanted: Any) -> None:
    for a, b in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        if isinstance(b, torch.Tensor):
            assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
            torch.testing.assert_close(a, b, atol=2e-5, rtol=2e-5, equal_nan=True)
        else:
            assert a == b and type(a) is type(b)


def is_general(f: Any) -> bool:
    return any("\nsize s" in p.artifact.levels().text("torch") for p in f.programs)


def matrix(a: int, b: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(a, b),)


def writes(x: Any, y: Any) -> Any:
    x.add_(y.sum())
    return x * 2


def views(x: Any) -> Any:
    return x[1:], (x * 2).transpose(0, 1), x.shape[0] * 3, x.reshape(-1), x.numel()


def library(x: Any) -> Any:
    values, order = torch.sort(x * 2 - 1, dim=0, stable=True)
    return values * 2, order, torch.topk((x + 1) * 2, 2, dim=1).values + x[:, :2]


def moves(x: Any) -> Any:
    parts = (x[:, 1::2].sum(0), x[:-1] - x[1:], F.pad(x, (1, 2)), torch.cat([x, x * 2], 0))
    made = (torch.arange(x.shape[0]) * 2, torch.arange(x.shape[1]).float() / x.shape[1])
    return *parts, *made, x.flip(0), x.roll(1, 0), x.new_zeros(x.shape[0])


def folds(x: Any) -> Any:
    means = (F.layer_norm(x, x.shape[1:]), x.mean(), x.var(0), x.std(1), x * x.shape[0])
    return *means, x.cumsum(0), x.softmax(0), x.logsumexp(0), x.amax(0), x.argmax(1), x.prod(1)


def products(x: Any) -> Any:
    hidden = torch.full((x.shape[0], x.shape[0]), float("-inf")).triu(1)
    return (x @ x.t() + hidden).softmax(-1), x.t() @ x, x.t().contiguous().relu() @ x


def windows(x: Any, w: Any) -> Any:
    products = (F.conv2d(x, w, padding=1), F.conv2d(x, w, stride=2, padding=1))
    pools = (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 1, 1), x.mean((2, 3)))
    return *products, F.conv2d(x, w[:3, :1], padding=1, groups=3), *pools


PROGRAMS: dict[str, tuple[Callable[..., Any], Make]] = {
    "writes": (writes, lambda a, b: (torch.randn(a, b), torch.randn(b))),
    "views": (views, matrix),
    "library": (library, matrix),
    "moves": (moves, matrix),
    "halves": (
        lambda x: x.view(-1, 2, x.shape[1]).sum(1),
        lambda a, b: (torch.randn(2 * a, b),),
    ),
    "folds": (folds, matrix),
    "products": (products, matrix),
    "batches": (
        lambda x: torch.baddbmm(x[:, None, :3], x[:, :2, None], x[:, None, 2:5], beta=0.5),
        lambda a, b: (torch.randn(a, b + 4),),
    ),
    "windows": (windows, lambda a, b: (torch.randn(2, 3, a, b), torch.randn(20, 3, 3, 3))),
    "embedding": (
        lambda w, i: F.embedding(i, w).sum(1),
        lambda a, b: (torch.randn(50, 32), torch.randint(0, 50, (a, b))),
    ),
    "bags": (
        lambda w, i: F.embedding_bag(i, w),
        lambda a, b: (torch.randn(50, 32), torch.randint(0, 50, (a, b))),
    ),
    "dropout": (lambda x: F.dropout(x, 0.5, True), matrix),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_for_all_sizes(name: str) -> None:
    fn, make = PROGRAMS[name]
    f = weft.compile(fn, dynamic=True, random="eager")
    for a, b in SIZES:
        torch.manual_seed(a)
        args = make(a, b)
        own = [x.clone() for x in args]
        torch.manual_seed(1)
        wanted = fn(*args)
        torch.manual_seed(1)
        assert_equal(f(*own), wanted)
        assert_equal(own, list(args))
    assert len(f.programs) == 1 and is_general(f) and not f.reasons


def attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_a_size_that_a_number_depends_on_is_fixed() -> None:
    f = weft.compile(attention, dynamic=True)  # 1 / sqrt of the last one
    for heads, rows in ((4, 5), (2, 17), (3, 31)):
        args = [torch.randn(2, heads, rows, 16) for _ in range(3)]
        assert_equal(f(*args), attention(*args))
    assert len(f.programs) == 1 and is_general(f)
    args = [torch.randn(2, 3, 5, 8) for _ in range(3)]
    assert_equal(f(*args), attention(*args))
    assert len(f.programs) == 2


def test_what_no_size_decides_is_compiled_for_each(caplog: pytest.LogCaptureFixture) -> None:
    def fn(x: Any) -> Any:
        return x.unfold(0, x.shape[1], 2).sum(-1) + F.avg_pool1d(x[None], 3)[0, :1].sum()

    with caplog.at_level(logging.INFO, "weft"):
        f = weft.compile(fn, dynamic=True)
        for rows, columns in ((9, 6), (12, 7), (30, 8)):
            x = torch.randn(rows, columns)
            assert_equal(f(x), fn(x))
    told = [r.message for r in caplog.records if "each size by itself" in r.message]
    assert is_general(f) or told


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)
        self.up, self.down = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def test_training_compiles_two_graphs() -> None:
    module = Block()
    f = weft.compile(module, dynamic=True)
    for rows, length in ((3, 5), (2, 11), (7, 4), (13, 2)):
        x = torch.randn(rows, length, 32)
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        module.zero_grad()
        module(theirs).square().sum().backward()
        wanted = [p.grad.clone() for p in module.parameters() if p.grad is not None]
        module.zero_grad()
        f(ours).square().sum().backward()
        assert_equal([p.grad for p in module.parameters()], wanted)
        assert_equal(ours.grad, theirs.grad)
    assert len(f.programs) == 2 and is_general(f)


def test_sizes_one_and_zero_are_programs_of_their_own() -> None:
    module = Block().eval()
    f = weft.compile(module, dynamic=True)
    with torch.no_grad():
        for shape in ((3, 5), (1, 5), (1, 9), (4, 1), (0, 6), (6, 2)):
            x = torch.randn(*shape, 32)
            assert_equal(f(x), module(x))
    assert len(f.programs) <= 4


def test_sizes_are_fixed_once_torch_takes_no_guards() -> None:
    env = ShapeEnv()
    context = StatelessSymbolicContext([DimDynamic.DYNAMIC])
    fake = FakeTensorMode(shape_env=env).from_tensor(torch.randn(7), symbolic_context=context)
    graph = torch.fx.symbolic_trace(lambda x: (x * 2,))
    assert str(capture(graph, [fake]).graph.outputs[0].type) == "f32[s0]"
    env.freeze()
    with pytest.raises(CaptureError, match="no guards"):
        capture(graph, [fake])


def test_a_known_call_reads_sizes_without_dynamo(monkeypatch: pytest.MonkeyPatch) -> None:
    f = weft.compile(torch.relu, dynamic=True)
    f(torch.randn(5, 7))
    monkeypatch.setattr(torch._dynamo.utils, "call_size", None)
    x = torch.randn(6, 9)
    assert_equal(f(x), torch.relu(x))


def test_the_other_entry() -> None:
    torch._dynamo.reset()
    module = Block().eval()
    options = {"dynamic": True}
    f = torch.compile(module, backend="weft", options=options, dynamic=True)
    with torch.no_grad():
        for shape in ((3, 5), (2, 9), (7, 2)):
            x = torch.randn(*shape, 32)
            assert_equal(f(x), module(x))


@pytest.mark.parametrize(("dynamic", "programs"), [(None, 2), (False, 4)])
def test_a_size_is_free_from_its_second_value_on(dynamic: bool | None, programs: int) -> None:
    f = weft.compile(lambda x: x * 2, dynamic=dynamic)
    for n in (3, 4, 5, 3, 7):
        x = torch.randn(n, 8)
        assert_equal(f(x), x * 2)
    assert len(f.programs) == programs and is_general(f) == (dynamic is None)
    assert dynamic is False or "[s0,8]" in f.ir("torch") or "[s0 * 8]" in f.ir("tile")


def test_what_changes_is_learnt_by_each_callable() -> None:
    """Dynamo keeps it by file and line, which are all one for functions that we make."""
    for n in (3, 4):
        f = weft.compile(lambda x: x * 2)
        f(torch.randn(n))
        assert not is_general(f)


@pytest.mark.parametrize(("low", "programs"), [(2, 2), (-1, 5)])
def test_ints_are_free_from_their_second_value_on(low: int, programs: int) -> None:
    """Those below 2 are not, nor do they make others fixed."""
    f = weft.compile(lambda x, k: x * k + x.sum())
    for k in (9, low, low + 1, low + 2, 5, 6):
        x = torch.randn(4)
        assert_equal(f(x, k), x * k + x.sum())
    assert len(f.programs) == programs


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, k: x * min(k, 2),
        lambda x, k: x * min(k, 0),
        lambda x, k: x[: min(k, 2)].sum(0),
        lambda x, k: x + (1 // k if k else 0),
        lambda x, k: x * min(k, 2**33) + k // 2**40,
    ],
)
def test_no_int_is_taken_for_another(fn: Callable[..., Any], dynamic: bool | None) -> None:
    """What a term is for all numbers that a program is for may be none of the number's."""
    f = weft.compile(fn, dynamic=dynamic)
    for k in (5, 7, 1, 9, 0, -1, -5, 2**41, 3, 2):
        x = torch.randn(4, 3)
        assert_equal(f(x, k), fn(x, k))


# ---- text


TEXT = """program tensor main
size s0: 2..65536 near 13, s0 % 2 == 0
input x: f32[s0,64]
v0 = view{[s0 // 2,2,64] -> (i0 * 2 + i1, i2)}(x): f32[s0 // 2,2,64]
v1 = reduce{sum, axes=(1,)}(v0): f32[s0 // 2,1,64]
output v1
"""


def test_text_is_read_and_run_at_any_level() -> None:
    text = TEXT.replace("13", "14")
    for level in ("tensor", "loop", "tile", "kernel"):
        program = compile_text(text)
        for rows in (2, 14, 30):
            x = torch.randn(rows, 64)
            wanted = x.view(rows // 2, 2, 64).sum(1, keepdim=True)
            assert_equal(program(x), wanted)
            torch.testing.assert_close(torch.from_numpy(program.interpret(x)[0]).float(), wanted)
        text = program.ir({"tensor": "loop", "loop": "tile", "tile": "kernel"}.get(level, level))
        assert "size s0: 2..65536 near 14, s0 % 2 == 0\n" in text


def test_rests_of_squares_are_crossed_in_registers() -> None:
    """Sixteen gathers took gcc four seconds, and the machine longer than rows that it crosses."""
    x = torch.randn(130, 257)
    f = weft.compile(lambda x: x.t().contiguous(), dynamic=True, target="cpu:avx2")
    for shape in ((130, 257), (2, 3), (17, 8), (16, 9)):
        part = x[: shape[0], : shape[1]].clone()
        assert_equal(f(part), part.t().contiguous())
    assert len(f.programs) == 1
    assert f.ir("kernel").count("gather") == 3  # of single rows; all others were 12 more


def test_sizes_that_are_met_first_decide_no_schedule() -> None:
    """What was scheduled for a 2 by 3 matrix took 7 times as long as eager at 1000 by 700."""

    def text(*shapes: tuple[int, int]) -> str:
        f = weft.compile(lambda x: torch.softmax(x, -1), target="cpu:avx2")
        for shape in shapes:
            x = torch.randn(shape)
            assert_equal(f(x), torch.softmax(x, -1))
        return f.programs[-1].artifact.levels().text("tile")

    few = text((4, 5), (2, 3))
    assert "near 1024" in few and few == text((900, 1000), (1024, 1024))


def test_calls_that_exceed_the_caches_bypass_them() -> None:
    """The first call decided for all: add took 1.5 times as long where a small one came first."""
    f = weft.compile(torch.relu, dynamic=True, target="cpu:avx2")
    for shape in ((3, 5), (1500, 1500)):  # 18 MB of input and output
        assert_equal(f(x := torch.randn(shape)), torch.relu(x))
    assert len(f.programs) == 1
    assert "v0 = ge(s0 * s1 * 8, 16777216)" in f.ir("tile") and "stream when v0" in f.ir("tile")


def test_few_rows_have_a_program_for_few() -> None:
    f = weft.compile(torch.nn.Linear(512, 512), dynamic=True, target="cpu:avx2")
    with torch.no_grad():
        f(torch.randn(3, 512))
        assert "near 3\n" in f.ir("tile") and "dots0" in f.ir("tile")
        f(torch.randn(40, 512))
    assert "near 40\n" in f.ir("tile") and len(f.report.sizes) == 2


def test_rows_of_any_length_are_prefetched() -> None:
    text = """program loop rows
size s0: 2..65536 near 4096
size s1: 2..65536 near 8192
input x: f32[s0,s1]

kernel y(x: f32[s0,s1]) -> y: f32[s0,s1]
for a0 in 0..s0:  # free
    for a1 in 0..s1:  # reduce
        in0 = load x[a0, a1]
        acc0 <- add(acc0, in0)
    for a2 in 0..s1:  # free
        in1 = load x[a0, a2]
        v0 = subtract(in1, acc0)
        y[a0, a2] = v0

output y
"""
    levels = compile_text(text, Options("cpu:avx512"))
    kernel = levels.ir("kernel")
    assert "] ahead s1\n" in kernel and ", s1);" in levels.ir("source")
    assert print_program(parse_program(kernel)) == kernel


@pytest.mark.parametrize(
    ("old", "new", "error", "told"),
    [
        ("near 13", "near 1", VerifyError, "its hint is 1"),
        ("near 13", "near 15", VerifyError, "is a multiple of 2, its hint is 15"),
        ("x: f32[s0,64]", "x: f32[s1,64]", ParseError, "undefined size s1, did you mean s0"),
    ],
)
def test_invalid_sizes(old: str, new: str, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        weft.driver.compile_text(TEXT.replace(old, new).replace("near 13", "near 14"))


@pytest.mark.parametrize("rows", [1, 15, 65538])
def test_a_size_outside_of_its_range(rows: int) -> None:
    program = weft.driver.compile_text(TEXT.replace("13", "14"))
    with pytest.raises(VerifyError, match=f"size s0 runs from 2 to 65536, and {rows} was given"):
        program(torch.randn(rows, 64))


@pytest.mark.parametrize("causal", [True, False])
def test_blocks_of_rows_end_where_rows_do(causal: bool) -> None:
    """Scores of more than the cache are merged with what reads them, over blocks of rows."""

    def attend(*args: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(*args, is_causal=causal)

    f = weft.compile(attend, dynamic=True)
    for rows in (512, 2, 31, 33, 64, 127, 600):  # parts of a block, of a panel and of a vector
        args = [torch.randn(1, 8, rows, 16) for _ in range(3)]
        assert_equal(f(*args), attend(*args))
    assert len(f.programs) == 1 and "reduce_rows" in weft.ir(f, "tile")
