"""What a report holds is what was compiled: its texts, work, memory, and why."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import weft
from weft import driver
from weft.cli.workloads import workload
from weft.core.errors import WeftError
from weft.explain.data import gather, text_of
from weft.explain.names import SHOWN
from weft.explain.report import data_in, page
from weft.options import Options

TARGETS = ("cpu", "cuda:sm_90a", "hip:gfx942", "opencl", "metal")


def explained(f: Any, *args: Any, title: str = "f", **keywords: Any) -> tuple[Any, dict[str, Any]]:
    """A compiled callable, and its data, read back from the page."""
    compiled = weft.compile(f, **keywords).prepare(*args)
    html = page(gather(title, compiled, Options.of({"target": "cpu", **keywords})))
    return compiled, data_in(html)


def softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ y, 1).relu()


def levels_of(data: dict[str, Any], level: str) -> str:
    return "\n".join(text_of(data, p["levels"][level]) for p in data["programs"])


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
def test_the_levels_of_a_report_are_those_of_the_program(target: str) -> None:
    f, data = explained(softmax, torch.randn(20, 40), torch.randn(40, 24), target=target)
    assert [*data["programs"][0]["levels"]] == [*SHOWN]
    for level in SHOWN:
        assert levels_of(data, level) == f.ir(level)


def test_a_program_of_two_graphs_has_both() -> None:
    f = weft.compile(nn.Linear(8, 4), target="cpu")
    f(torch.randn(3, 8, requires_grad=True)).sum().backward()
    data = data_in(page(gather("linear", f, Options("cpu"))))
    assert len(data["programs"]) == len(f.programs) == 2
    for level in SHOWN:
        assert levels_of(data, level) == f.ir(level)


def test_text_of_a_lower_level_has_the_levels_below() -> None:
    whole = weft.compile(softmax, target="cpu").prepare(torch.randn(20, 40), torch.randn(40, 24))
    options = Options("cpu")
    again = driver.compile_text(whole.ir("tile"), options)
    data = data_in(page(gather("tile", again, options)))
    assert [*data["programs"][0]["levels"]] == ["tile", "kernel", "source"]
    assert levels_of(data, "source") == whole.ir("source")


def test_lines_know_their_kernels_and_names_their_tensors() -> None:
    _, data = explained(softmax, torch.randn(20, 40), torch.randn(40, 24), target="cpu")
    program = data["programs"][0]
    kernels = [k["name"] for k in program["kernels"]]
    for level, head in (("loop", "kernel {}("), ("tile", "kernel {}("), ("source", "void k_{}(")):
        text = levels_of(data, level).split("\n")
        for start, stop, (number,) in program["spans"][level]:
            own = "\n".join(text[start:stop])
            assert own.count(head.format(kernels[number])) == 1
    torch_lines = levels_of(data, "torch").split("\n")
    owners = {torch_lines[i].partition(" = ")[0]: {*own}
              for a, b, own in program["spans"]["torch"] for i in range(a, b)}  # fmt: skip
    assert owners["mm"] == {0} and owners["relu"] == {1}
    assert program["values"]["loop"]["reduce"].startswith("t.v")  # a sum has no name of its own


@pytest.mark.parametrize("target", TARGETS)
def test_the_work_of_a_product_on_every_target(target: str) -> None:
    f = weft.compile(torch.matmul, target=target).prepare(torch.randn(16, 64), torch.randn(64, 16))
    (kernel,) = f.report.kernels
    assert kernel.flops == 2 * 16 * 64 * 16
    assert kernel.bytes == 4 * (16 * 64 + 64 * 16 + 16 * 16)


def test_work_is_what_is_computed_and_touched() -> None:
    table, rows = torch.randn(1000, 8), torch.tensor([3, 5])
    f = weft.compile(lambda t, r: t[r].exp() + 1, target="cpu").prepare(table, rows)
    (kernel,) = f.report.kernels
    assert kernel.flops == 2 * 2 * 8  # exp is one operation, as an addition is
    assert kernel.bytes <= 4 * 16 + 8 * 16 + 4 * 16  # two rows of the table, not all of it


def test_a_report_tells_what_the_search_did() -> None:
    args = torch.randn(64, 64), torch.randn(64, 64), torch.randn(64, 4)
    _, data = explained(lambda a, b, c: a @ b @ c, *args, search="on")
    (region,) = data["programs"][0]["regions"]
    assert region["outcome"] == "taken" and "error" in region["why"]
    assert region["was"] == "sum_k(sum_j(a[i, j] * b[j, k]) * c[k, l])"
    assert region["is"] == "sum_j(a[i, j] * sum_k(b[j, k] * c[k, l]))"
    before, after = map(int, region["operations"].split(" -> "))
    assert (before, after) == (64**3 + 64 * 64 * 4, 2 * 64 * 64 * 4)
    assert any(p["name"] == "n:003_search" and p["diff"] for p in data["programs"][0]["passes"])


def test_a_region_that_stays_says_why() -> None:
    args = torch.randn(64, 4), torch.randn(4, 64), torch.randn(64, 64)
    _, data = explained(lambda a, b, c: a @ (b @ c), *args, search="on")
    assert [r["outcome"] for r in data["programs"][0]["regions"]] == ["nothing cheaper"]


def test_a_report_tells_fusions_choices_and_memory() -> None:
    f, data = explained(softmax, torch.randn(64, 64), torch.randn(64, 64), target="cpu")
    program = data["programs"][0]
    taken = [x for x in program["fusions"] if x["taken"]]
    left = [x for x in program["fusions"] if not x["taken"]]
    assert taken and all(x["saved"] > 0 for x in taken)
    assert left and all(x["saved"] is None or x["saved"] < 0 for x in left)
    rows = {c["name"]: c for c in program["choices"]["relu"]}
    axes = rows["vector_axis"]
    assert axes["taken"] == axes["options"][0] and axes["prices"] == sorted(axes["prices"])
    arena = program["arena"]
    assert arena["bytes"] == f.report.arena_bytes == 4 * 64 * 64
    (temporary,) = [b for b in arena["buffers"] if b["offset"] is not None]
    assert (temporary["first"], temporary["last"]) == (0, 1)
    assert [s["kernel"] for s in arena["steps"]] == [0, 1]
    assert set(program["seconds"]) >= {"capture", "tensor", "loop", "tile", "kernel", "source"}


def test_an_extern_has_its_reason() -> None:
    f, data = explained(lambda x: torch.linalg.qr(x)[0] + 1, torch.randn(9, 9), target="cpu")
    ((op, why, _),) = f.report.externs
    assert [(x["op"], x["why"]) for x in data["externs"]] == [(op, why)]
    assert [*data["programs"][0]["arena"]["steps"][0]] == ["extern"]


def test_what_runs_in_eager_alone_has_no_report() -> None:
    f = weft.compile(lambda x: x, target="cpu")
    with pytest.raises(WeftError, match="nothing of f was compiled"):
        gather("f", f, Options("cpu"))


def test_a_page_stands_alone_and_holds_any_text() -> None:
    title = "</script><!-- <b> {{DATA}} \u2028"
    compiled = weft.compile(torch.relu, target="cpu").prepare(torch.randn(4))
    html = page(gather(title, compiled, Options("cpu")))
    assert data_in(html)["title"] == title
    assert not re.search(r"https?:|@import|url\(|<link|src=", html)


def test_the_page_of_a_tinyllama_layer_is_small() -> None:
    text = workload("TinyLlama decoder layer, 32 tokens").text
    names: dict[str, Any] = {"torch": torch, "nn": nn}
    with torch.device("meta"):
        exec("\n".join(text.splitlines()[:-1]), names)
        layer, x = names["Layer"]().eval(), torch.randn(1, 32, 2048)
    compiled = weft.compile(layer, target="cpu:avx2")
    with torch.no_grad():
        compiled.prepare(x)
    html = page(gather("TinyLlama", compiled, Options("cpu:avx2")))
    assert 100_000 < len(html.encode()) < 500_000  # of the 2 MB that all its layers may have
    assert levels_of(data_in(html), "kernel") == compiled.ir("kernel")


def test_the_ceiling_of_a_kernel_is_that_of_what_it_reads() -> None:
    x = torch.randn(64, 64)
    for args, half in (((x, x), False), ((x.bfloat16(), x.bfloat16()), True)):
        _, data = explained(torch.matmul, *args, target="cuda:sm_90a")
        assert all(k["half"] is half for k in data["programs"][0]["kernels"])
        names = [name for name, _ in data["ceilings"]["compute"]]
        assert names == ["multiply-adds of f32", "tensor cores, 16-bit products"]
