"""The programs of `weft bench cuda`: all are made at their real size and compiled to CUDA, on meta.

No memory and no device is needed for that; the small ones run in eager as well.
"""

from __future__ import annotations

import time

import pytest
import torch

from weft.cli.compiling import compile_source
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load
from weft.cli.workloads import CUDA_WORKLOADS
from weft.options import Options

COMPILE_SECONDS = 20.0  # of a processor, whatever else the machine does


def made(name: str, device: str) -> Source:
    source = load(SourceSpec(text=CUDA_WORKLOADS[name].text, device=device))
    assert isinstance(source, Source) and (source.args or source.kwargs)
    return source


def test_all_groups_are_begun_early() -> None:
    assert len(CUDA_WORKLOADS) >= 50
    groups = [workload.group for workload in CUDA_WORKLOADS.values()]
    assert set(groups[: len(set(groups))]) == set(groups)


@pytest.mark.parametrize("name", CUDA_WORKLOADS)
def test_compiles_at_its_real_size(name: str) -> None:
    if "decoder layer" in name:
        pytest.importorskip("transformers")
    source = made(name, "meta")
    assert all(t.is_meta for t in source.args)
    start = time.process_time()
    with torch.no_grad():
        compiled = compile_source(source, Options("cuda:sm_90a", fallback="error"))
    assert time.process_time() - start < COMPILE_SECONDS
    text = compiled.ir("cuda")
    assert "__global__" in text and ("bf16" in text) >= ("bf16" in name)


@pytest.mark.parametrize("name", ["RMSNorm 32x2048", "call overhead 16x16", "matmul 512"])
def test_runs_in_eager(name: str) -> None:
    source = made(name, "cpu")
    with torch.no_grad():
        out = source.callable(*source.args, **source.kwargs)
    assert isinstance(out, torch.Tensor) and not out.isnan().any()
