"""Language models for a GPU: at full size from config alone, and two tiny layers simulated."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft.cli.compiling import compile_source
from weft.cli.main import main
from weft.cli.program import Source, SourceSpec
from weft.cli.source import load
from weft.options import Options

transformers = pytest.importorskip("transformers")

TINY = {"vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY |= {"intermediate_size": 112, "num_key_value_heads": 2}
TINY_LLAMA = {"vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632}
TINY_LLAMA |= {"num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4}
QWEN_7B = {"vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944}
QWEN_7B |= {"num_hidden_layers": 4, "num_attention_heads": 28, "num_key_value_heads": 4}


def folder(path: Path, kind: str, sizes: dict[str, Any], **more: Any) -> Path:
    """A model folder with nothing but its config."""
    config = getattr(transformers, f"{kind}Config")(**sizes, **more)
    config.architectures = [f"{kind}ForCausalLM"]
    config.save_pretrained(path)
    return path


@pytest.mark.parametrize(("kind", "sizes"), [("Llama", TINY_LLAMA), ("Qwen2", QWEN_7B)])
def test_full_size_from_config_alone(kind: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    """However many layers there are, the kernels of one of them are scheduled."""
    path = folder(tmp_path, kind, sizes, dtype="bfloat16")
    source = load(SourceSpec(path=str(path), meta=True))
    assert isinstance(source, Source)
    assert all(p.is_meta for p in source.callable.parameters())  # type: ignore[attr-defined]
    compiled = compile_source(source, Options("cuda:sm_90a", fallback="error"))
    report = compiled.report
    assert len(report.kernels) > 10 * sizes["num_hidden_layers"]
    assert report.distinct < 30
    assert compiled.ir("cuda").count("__global__") == report.distinct


def test_the_number_of_distinct_kernels_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(tmp_path, "Llama", {**TINY, "num_hidden_layers": 4})
    with pytest.raises(SystemExit) as caught:
        main(["compile", str(path), "--target", "cuda:sm_90a"])
    printed = capsys.readouterr().out
    assert caught.value.code == 0 and "of them distinct" in printed


@pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")
@pytest.mark.parametrize("kind", ["Llama", "Qwen2"])
def test_simulated_logits_are_eagers(kind: str) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**TINY)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    ids = torch.randint(3, 96, (2, 9))
    f = weft.compile(model, target="cuda:sm_90a", simulate=True, fallback="error")
    with torch.no_grad():
        got = f(input_ids=ids, use_cache=False).logits
        wanted = model(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
