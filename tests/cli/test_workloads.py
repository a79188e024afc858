"""The suite's programs: all parse, the issue's own rows are there, small ones give a tensor."""

from __future__ import annotations

import ast
import re
from itertools import chain

import pytest
import torch

from weft.cli.program import Source, SourceSpec
from weft.cli.source import load
from weft.cli.workloads import CUDA_WORKLOADS, DATA, PROGRAMS, WORKLOADS

NAMED = """RMSNorm 2048x2048
softmax 28x512x512
matmul 1024
linear + GELU 128x768x3072
GEMV 1x2048x5632
attention 12x1024x64
conv 3x3 64ch 56x56
TinyLlama decoder layer, 128 tokens
TinyLlama decoder layer, 1 token""".splitlines()


def test_there_are_enough_and_every_text_parses() -> None:
    assert len(WORKLOADS) >= 40
    for names, workloads in ((DATA["cpu"], WORKLOADS), (DATA["cuda"], CUDA_WORKLOADS)):
        assert len(workloads) == len(re.split("; |\n", names.strip())), "a name stands twice"
        for name, workload in workloads.items():
            assert isinstance(ast.parse(workload.text).body[-1], ast.Expr), name
            assert name.endswith(" bf16") == ("bfloat16()" in workload.text), name


def test_every_program_is_in_a_suite_and_in_one_group() -> None:
    used = {re.sub(r"\d+", "#", n.removesuffix(" bf16")) for n in (*WORKLOADS, *CUDA_WORKLOADS)}
    assert sorted(used) == sorted(chain.from_iterable(PROGRAMS.values()))


def test_the_rows_of_the_issue_are_there() -> None:
    assert set(NAMED) <= set(WORKLOADS)


@pytest.mark.parametrize(
    "name",
    [
        "call overhead 16x16",
        "masked softmax 12x512x512",
        "split heads 8x512x12x64",
        "matmul A @ B.T 512x1024x768",
        "attention, grouped 32/4x512x64",
        "conv depthwise 3x3 128ch 56x56",
        "embedding bag 256x32 of 50000x128",
        "scatter add 4096x1024",
        "MLP 64x512-2048-512",
    ],
)
def test_runs_in_eager(name: str) -> None:
    source = load(SourceSpec(text=WORKLOADS[name].text))
    assert isinstance(source, Source) and (source.args or source.kwargs)
    with torch.no_grad():
        out = source.callable(*source.args, **source.kwargs)
    assert isinstance(out, torch.Tensor) and not out.isnan().any()


def test_the_decoder_layer_reads_its_cache() -> None:
    """512 tokens are cached, so one more attends to 513: another cache gives another result."""
    pytest.importorskip("transformers")
    source = load(SourceSpec(text=WORKLOADS["TinyLlama decoder layer, 1 token"].text))
    assert isinstance(source, Source)
    x, keys, values = source.args
    with torch.no_grad():
        out, other = source.callable(x, keys, values), source.callable(x, keys, values + 1)
    assert out.shape == x.shape and not torch.allclose(out, other)
