"""C for an instruction set is compiled for that one, where this machine has it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import weft
from weft.link.cpu import tools
from weft.options import find_target
from weft.runtime.compiler import ISAS, find_compiler
from weft.targets.cpu import CPU, cpu_facts, cpu_flags

SOURCE = """
#ifdef __AVX2__
avx2
#endif
#ifdef __AVX512F__
avx512f
#endif
#ifdef __AVX512BF16__
avx512_bf16
#endif
"""


@pytest.mark.parametrize("isa", ISAS)
def test_flags(isa: str, tmp_path: Path) -> None:
    if isa not in cpu_flags(cpu_facts()):
        pytest.skip(f"this machine has no {isa}")
    source = tmp_path / "has.c"
    source.write_text(SOURCE)
    assert find_compiler(isa=isa).preprocess(source).split() == [*ISAS][: [*ISAS].index(isa) + 1]


def test_what_the_machine_lacks_is_compiled_for_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("weft.runtime.compiler.cpu_flags", lambda facts: set[str]())
    compiler = find_compiler(f"{find_compiler().command[0]} -DOTHER", isa="avx512f")
    assert "-march=x86-64-v4" not in compiler.flags


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:avx512", "cpu:plain"])
def test_programs_of_one_key_are_apart(target: str) -> None:
    found = find_target(target)
    assert isinstance(found, CPU)
    f = weft.compile(lambda x: (x.sigmoid() * x).sum(0), target=target)
    x = torch.randn(37, 19)
    torch.testing.assert_close(f(x), (x.sigmoid() * x).sum(0))
    assert (tools(found.isa).cache.salt == tools("").cache.salt) == (
        found.isa not in cpu_flags(cpu_facts())
    )
