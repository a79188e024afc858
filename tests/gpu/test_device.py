"""Compiled programs on a CUDA device, where there is one: as eager, on any stream, repeatedly."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import weft
from tests.gpu.programs import PROGRAMS
from tests.gpu.test_launching import rows
from weft.cli.check import check, copied, run_eager, run_reference
from weft.cli.main import main
from weft.cli.program import Source

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture(autouse=True)
def in_f32() -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def on_device(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t.cuda(), tree)


def passes(f: Any, function: Callable[..., Any], *args: Any) -> None:
    """As accurate as the contract asks, of eager's structure, dtypes, strides and device."""
    source = Source(function, args, {}, "program")
    truth = run_eager(source), run_reference(source)
    with torch.no_grad():
        got = f(*pytree.tree_map_only(torch.Tensor, torch.clone, args))
    for verdict in check(got, *truth):
        assert verdict.passed, verdict


@pytest.mark.parametrize("fuse", ["greedy", "none"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str, fuse: Any) -> None:
    function, make = PROGRAMS[name]
    if name == "large_values":
        pytest.skip("it makes a tensor on the CPU")
    args = on_device(make())
    if name == "scatter":
        function = lambda x, i: torch.zeros(5, 37, device=x.device).scatter_add(0, i, x)  # noqa: E731
    f = weft.compile(function, target="cuda", fuse=fuse, fallback="error")
    for _ in range(3):
        passes(f, function, *args)


LARGE = {
    "softmax": (lambda x: x.softmax(-1), (4096, 3000)),
    "layer_norm": (lambda x: F.layer_norm(x, (3000,)), (4096, 3000)),
    "row_sum": (lambda x: x.sum(1), (4096, 3000)),
    "column_sum": (lambda x: x.sum(0), (4096, 3000)),
    "transpose": (lambda x: x.t().contiguous(), (4095, 3001)),
    "gelu": (F.gelu, (10_000_019,)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LARGE)
def test_large(name: str, dtype: torch.dtype) -> None:
    function, shape = LARGE[name]
    x = torch.randn(shape, device="cuda").to(dtype)
    passes(weft.compile(function), function, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sizes", [(512, 512, 512), (1001, 777, 333), (2048, 2048, 64), (1, 64, 9)])
def test_products(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    m, k, n = sizes
    x, w = torch.randn(m, k, device="cuda").to(dtype), torch.randn(k, n, device="cuda").to(dtype)
    passes(weft.compile(torch.mm), torch.mm, x, w)
    passes(weft.compile(F.linear), F.linear, x, w.t())


def test_auto_is_where_the_tensors_are() -> None:
    f = weft.compile(lambda x: x.softmax(-1))
    passes(f, lambda x: x.softmax(-1), torch.randn(5, 300, device="cuda"))
    passes(f, lambda x: x.softmax(-1), torch.randn(5, 300))
    assert "__global__" in f.ir("source") and "void k_softmax" in f.ir("source")
    with pytest.raises(weft.WeftError, match="move them there"):
        weft.compile(torch.relu, target="cuda")(torch.ones(3))
    with pytest.raises(weft.WeftError, match='target="cuda"'):
        weft.compile(torch.relu, target="cpu")(torch.ones(3, device="cuda"))


def test_repeated_calls_are_fresh() -> None:
    x, w = torch.randn(9, 7, device="cuda"), torch.randn(7, 7, device="cuda")
    f = weft.compile(rows, fuse="none")
    kept = [(y := torch.randn_like(x), f(y, w)) for _ in range(30)]
    for y, out in kept:
        torch.testing.assert_close(out, rows(y, w))
    for _ in range(30):  # the same addresses: a recorded graph
        x.copy_(torch.randn_like(x))
        torch.testing.assert_close(f(x, w), rows(x, w))
    (program,) = f.programs
    graphs = program.__globals__["segment0"].graphs
    assert any(graph is not None for graph in graphs.values())


def test_streams() -> None:
    w = torch.randn(7, 7, device="cuda")
    f = weft.compile(rows, fuse="none")
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for turn in range(30):
        with torch.cuda.stream(streams[turn % 3]):
            x = torch.randn(9, 7, device="cuda")
            found.append((x, f(x, w)))
    torch.cuda.synchronize()
    for x, out in found:
        torch.testing.assert_close(out, rows(x, w))


def test_work_before_and_after_is_in_order() -> None:
    x, w = torch.zeros(2048, 2048, device="cuda"), torch.randn(2048, 2048, device="cuda")
    f = weft.compile(lambda x: x * 2 + 1)
    for _ in range(5):
        x.copy_(w @ w)  # long: the call must wait for it
        torch.testing.assert_close(f(x) - 1, x * 2 + 1 - 1)


def test_inside_a_graph_of_the_user() -> None:
    x, w = torch.randn(9, 7, device="cuda"), torch.randn(7, 7, device="cuda")
    f = weft.compile(rows, fuse="none")
    f(x, w)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = f(x, w)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(out, rows(x, w))


@pytest.mark.parametrize("start", [1, 2, 3])
def test_an_input_at_an_odd_address(start: int) -> None:
    memory = torch.randn(100_000, device="cuda")
    cut = memory[start : start + 90_000].view(300, 300)
    passes(weft.compile(lambda x: x.softmax(-1)), lambda x: x.softmax(-1), cut)
    f = weft.compile(lambda x: x.softmax(-1))
    torch.testing.assert_close(f(cut), cut.softmax(-1))
    for x in (cut.t(), cut[::2, ::3], cut[:1].expand(300, 300)):
        torch.testing.assert_close(f(x), x.softmax(-1))


def test_inputs_are_written() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        y[:, 1].mul_(2)
        return x.softmax(-1)

    f = weft.compile(step)
    x, y = torch.randn(33, 50, device="cuda"), torch.randn(33, 50, device="cuda")
    mine, other = x.clone(), y.clone()
    for _ in range(4):
        torch.testing.assert_close(f(mine, other), step(x, y))
        torch.testing.assert_close((mine, other), (x, y))


def test_operators_run_between_kernels() -> None:
    def sorts(x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x * 2, dim=1)[0] + 1

    f = weft.compile(sorts, target="cuda")
    passes(f, sorts, torch.randn(50, 400, device="cuda"))
    assert [op for op, _, _ in f.report.externs] == ["aten.sort.default"]


def test_faults_are_errors() -> None:
    table, f = torch.randn(11, 8, device="cuda"), weft.compile(lambda t, i: t[i] + 1)
    with pytest.raises(weft.IndexOutOfRange, match="kernel"):
        f(table, torch.tensor([3, 11], device="cuda"))
    right = torch.tensor([3, 10], device="cuda")
    torch.testing.assert_close(f(table, right), table[right] + 1)


def test_a_number_on_the_cpu() -> None:
    x, scale = torch.randn(5, 7, device="cuda"), torch.tensor(2.5)
    f = weft.compile(lambda x, s: x * s + 1)
    torch.testing.assert_close(f(x, scale), x * scale + 1)


def test_from_another_thread() -> None:
    x, w = torch.randn(9, 7, device="cuda"), torch.randn(7, 7, device="cuda")
    f, found = weft.compile(rows, fuse="none"), []
    f(x, w)
    threads = [threading.Thread(target=lambda: found.append(f(x, w))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for out in found:
        torch.testing.assert_close(out, rows(x, w))


def test_a_training_step() -> None:
    module = nn.Sequential(nn.Linear(40, 50), nn.GELU(), nn.LayerNorm(50), nn.Linear(50, 3)).cuda()
    other, x = copied(module), torch.randn(20, 40, device="cuda")
    for f in (weft.compile(module), other):
        f(x).square().sum().backward()
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)


def test_memory_goes_back() -> None:
    x, w = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    f = weft.compile(rows, fuse="none")
    for _ in range(5):
        f(x, w)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        f(x, w)
    assert torch.cuda.memory_allocated() == before


def test_the_profile_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = "nn.Linear(1024, 512)(torch.randn(2048, 1024)).softmax(1)"
    with pytest.raises(SystemExit) as caught:
        main(["run", "-c", text, "--target", "cuda", "--profile"])
    printed = capsys.readouterr().out
    assert caught.value.code == 0, printed
    assert "occupancy" in printed and "% of peak" in printed


def test_a_model_as_eager() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, intermediate_size=112, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config).cuda().eval()
    ids = torch.randint(3, 96, (2, 9), device="cuda")
    f = weft.compile(model)
    with torch.no_grad():
        for _ in range(3):
            got = f(input_ids=ids, use_cache=False).logits
            wanted = model(input_ids=ids, use_cache=False).logits
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    assert not f.report.externs
