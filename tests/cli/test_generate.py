"""`weft run FOLDER --generate`: tokens of each backend beside eager's, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from weft.cli.generate import Job, checked
from weft.cli.generating import Encoding
from weft.cli.main import app
from weft.cli.program import Source
from weft.core.errors import SourceError

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip


def saved(path: Path) -> str:
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).save_pretrained(path)
    return str(path)


def with_tokenizer(path: Path) -> str:
    words = {word: i for i, word in enumerate(("<unk>", "once", "upon", "a", "time"))}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
    fast.save_pretrained(path)
    return str(path)


def test_every_backend_gives_eager_s_tokens(tmp_path: Path) -> None:
    folder = with_tokenizer(Path(saved(tmp_path)))
    given = ["--generate", "once upon a time", "--tokens", "4", "--backends", "eager,weft"]
    done = CliRunner().invoke(app, ["run", folder, *given, "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    assert "4 tokens, then 4" in done.output and "same" in done.output
    facts = json.loads((tmp_path / "out.json").read_text())
    eager, ours = facts["backends"]
    assert facts["prompt_tokens"] == 4 and eager["tokens"] == ours["tokens"]
    assert len(ours["tokens"][0]) == 4 and ours["cold"] > ours["prefill"] > 0 < ours["decode"]
    assert 1 <= ours["programs"] <= 4 and ours["stored_bytes"] == eager["stored_bytes"] > 0


def test_rows_of_several_lengths_of_quantised_weights(tmp_path: Path) -> None:
    given = ["--prompt-tokens", "5", "--tokens", "3", "--batch", "2", "--quantize", "int8"]
    out = ["--backends", "eager,weft", "--json", str(tmp_path / "out.json")]
    done = CliRunner().invoke(app, ["run", saved(tmp_path), *given, *out])
    assert done.exit_code == 0, done.output
    eager, ours = json.loads((tmp_path / "out.json").read_text())["backends"]
    assert eager["tokens"] == ours["tokens"] and [len(row) for row in ours["tokens"]] == [3, 3]
    full = sum(
        p.nbytes for p in transformers.LlamaForCausalLM.from_pretrained(tmp_path).parameters()
    )
    assert ours["stored_bytes"] < 0.75 * full
    done = CliRunner().invoke(app, ["run", "-c", "torch.ones(2)", "--batch", "2"])
    assert "takes --generate or --prompt-tokens" in str(done.exception)


def test_without_a_tokenizer_a_prompt_is_numbers(tmp_path: Path) -> None:
    encoding = Encoding(str(tmp_path))
    assert encoding.tokens("17 4") == [17, 4] and encoding.text([17, 4]) == "17 4"
    with pytest.raises(SourceError, match="takes a model folder, and nowhere is none"):
        Encoding("nowhere")
    with pytest.raises(SourceError, match="has no tokenizer: --generate takes numbers of tokens"):
        encoding.tokens("once upon")


@pytest.mark.parametrize(
    ("kind", "prompt", "job", "told"),
    [
        ("LlamaForCausalLM", [], Job(4), "one or more tokens from 0 to 63"),
        ("LlamaForCausalLM", [64], Job(4), "one or more tokens from 0 to 63"),
        ("LlamaForCausalLM", [1], Job(64), "1 tokens and 64 more are beyond the model's 64"),
        ("LlamaForCausalLM", [1], Job(4, activations="int8"), "it takes --quantize"),
        ("LlamaModel", [1], Job(4), "is no model that generates tokens"),
    ],
)
def test_what_cannot_be_continued(kind: str, prompt: list[int], job: Job, told: str) -> None:
    m = getattr(transformers, kind)(transformers.LlamaConfig(**SMALL))
    with pytest.raises(SourceError, match=told):
        checked(Source(m, (), {}, "m"), prompt, job)


def test_it_takes_a_model_folder() -> None:
    done = CliRunner().invoke(app, ["run", "-c", "torch.ones(2)", "--generate", "1"])
    assert done.exit_code != 0 and "takes a model folder" in str(done.exception or done.output)
