"""Models of transformers at sizes that they were not compiled for: `python -m bench.families`.

python -m bench.families --only bert llama --json families.json
Each is two layers with random weights, called at three batches and lengths (vision: resolutions)
through weft.compile, and compared with eager. The first sizes make a program of each graph, the
second one for any size: no graph has more than two.
"""

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch.utils._pytree import tree_flatten_with_path

import weft
from weft.cli.output import show, table, write_json
from weft.cli.suite_text import machine

SIZES = ((2, 17), (3, 24), (5, 41))  # batch and length
TINY = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "hidden_dim"), 112),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), 112),
    "num_key_value_heads": 2, "head_dim": 16, "d_kv": 16, "vocab_size": 96, "n_inner": 112,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    "use_cache": False,
}  # fmt: skip
IMAGE = {"image_size": 32, "patch_size": 8}
CONVOLUTIONS = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 2]}
SPEECH = {
    **dict.fromkeys(("conv_dim",), (32, 32)), "conv_kernel": (10, 3), "conv_stride": (5, 2),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
MELS = {"num_mel_bins": 8, "max_source_positions": 64, "max_target_positions": 64}
TEXT = """
albert arcee bert big_bird biogpt bloom camembert codegen cohere convbert data2vec-text deberta
deberta-v2 distilbert electra ernie esm falcon flaubert fnet gemma gemma2 gemma3_text glm
gpt2 gpt_bigcode gpt_neo gpt_neox gptj granite helium ibert layoutlm llama mistral modernbert mpnet
mpt mra nystromformer olmo olmo2 openai-gpt opt persimmon phi phi3 qwen2 qwen3 rembert roberta
roformer smollm3 squeezebert stablelm starcoder2 xglm xlm xlm-roberta xlnet
""".split()
PAIRS = "bart blenderbot led m2m_100 marian mbart mt5 pegasus plbart t5 umt5".split()
MORE: dict[str, dict[str, Any]] = {
    "vit": IMAGE, "deit": IMAGE, "beit": IMAGE, "dinov2": IMAGE, "vit_mae": IMAGE, "ijepa": IMAGE,
    "siglip_vision_model": IMAGE, "clip_vision_model": IMAGE, "resnet": CONVOLUTIONS,
    "regnet": CONVOLUTIONS, "convnext": {"hidden_sizes": [16, 32], "depths": [1, 1]},
    "convnextv2": {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2},
    "mobilenet_v2": {},
    "segformer": {
        "hidden_sizes": [16, 32, 32, 64], "depths": [1] * 4, "num_attention_heads": [1, 2, 2, 4],
    },
    "swin": {
        "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4,
        "image_size": 32, "patch_size": 4,
        **dict.fromkeys(("hidden_size", "num_attention_heads", "num_hidden_layers", "num_layers")),
    },
    "poolformer": {"hidden_sizes": [16, 16, 32, 32], "depths": [1] * 4},
    "wav2vec2": SPEECH, "hubert": SPEECH, "wavlm": SPEECH, "unispeech": SPEECH,
    "whisper": MELS, "speech_to_text": {**MELS, "input_feat_per_channel": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2, "head_dim": None},
    "esm": {"mask_token_id": 5},
    "big_bird": {"attention_type": "original_full"}, "codegen": {"rotary_dim": 8},
    "gptj": {"rotary_dim": 8},
    "led": {"attention_window": 8, "max_decoder_position_embeddings": 64},
    "deberta": {"pos_att_type": ["c2p", "p2c"], "relative_attention": True},
    "deberta-v2": {"pos_att_type": ["c2p", "p2c"], "relative_attention": True},
    "mra": {"max_position_embeddings": 128}, "xlnet": {"d_inner": 112},
}  # fmt: skip
COLUMNS = {
    "model": "model", "graphs": "graphs", "programs": "programs", "eager_parts": "eager",
    "externs": "externs", "error": "error", "seconds": "seconds", "verdict": "",
}  # fmt: skip
ERROR = 1e-4  # the largest relative difference to eager: two layers in float32


def model_of(name: str) -> torch.nn.Module:
    kind = transformers.CONFIG_MAPPING[name]
    plain = kind()
    given = {k: v for k, v in TINY.items() if hasattr(plain, k)} | MORE.get(name, {})
    if name not in TEXT and name not in PAIRS:
        given = {k: v for k, v in given.items() if k != "vocab_size"} | MORE[name]
    torch.manual_seed(0)
    given = {k: v for k, v in given.items() if v is not None}  # some take no value of these
    return transformers.AutoModel.from_config(kind(**given)).eval()


def inputs_of(name: str, model: torch.nn.Module, batch: int, length: int) -> dict[str, Any]:
    """What a model of this kind is called with: tokens, pixels, samples or a spectrogram."""
    main = model.main_input_name
    tokens = torch.randint(3, 96, (batch, length))
    pair = {"decoder_input_ids": tokens[:, : length // 2]}
    if main == "pixel_values":
        side = 32 if "image_size" in MORE[name] else 32 * (length // 8)
        return {main: torch.randn(batch, 3, side, side)}
    if main == "input_values":
        return {main: torch.randn(batch, 100 * length)}
    if main == "input_features":
        frames = 128 if name == "whisper" else 4 * length
        mels = (8, frames) if name == "whisper" else (frames, 8)
        return {main: torch.randn(batch, *mels), **pair}
    mask = (torch.arange(length) < length - torch.arange(batch)[:, None]).long()
    return {main: tokens, "attention_mask": mask, **(pair if name in PAIRS else {})}


def tensors(output: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for path, leaf in tree_flatten_with_path(output)[0]:
        if torch.is_tensor(leaf):
            yield "".join(map(str, path)), leaf


def difference(got: Any, wanted: Any) -> float:
    """The largest relative difference of two outputs; infinite where they are formed otherwise."""
    ours, theirs = dict(tensors(got)), dict(tensors(wanted))
    if ours.keys() != theirs.keys() or any(ours[k].shape != t.shape for k, t in theirs.items()):
        return float("inf")
    pairs = [(ours[k].double(), t.double()) for k, t in theirs.items()]
    return max(float((a - b).norm() / b.norm().clamp_min(1e-30)) for a, b in pairs)


def calls_of(name: str, model: torch.nn.Module) -> Iterator[tuple[dict[str, Any], Any]]:
    """The inputs of each size, and what eager gives."""
    for number, sizes in enumerate(SIZES):
        torch.manual_seed(number)
        more = inputs_of(name, model, *sizes)
        torch.manual_seed(0)
        with torch.no_grad():
            yield more, model(**more)


def measure(model: torch.nn.Module, calls: list[tuple[dict[str, Any], Any]]) -> dict[str, Any]:
    """One model at all sizes: what was compiled, and how far it is from eager."""
    begin, f = time.perf_counter(), weft.compile(model)
    worst, graphs = 0.0, 0
    for more, wanted in calls:
        torch.manual_seed(0)
        with torch.no_grad():
            worst = max(worst, difference(f(**more), wanted))
        graphs = graphs or len(f.programs)
    passed = worst <= ERROR and len(f.programs) <= 2 * graphs
    return {
        "graphs": graphs,
        "programs": len(f.programs),
        "eager_parts": len(f.reasons),
        "externs": len(f.report.externs),
        "error": float(f"{worst:.1e}"),
        "seconds": round(time.perf_counter() - begin, 1),
        "verdict": "ok" if passed else "FAILED",
        "reasons": f.reasons,
    }


def names(only: list[str]) -> list[str]:
    every = list(dict.fromkeys((*TEXT, *PAIRS, *MORE)))
    return [n for n in every if not only or n in only]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="names of models")
    parser.add_argument("--json", help="where to write all figures")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows: dict[str, dict[str, Any]] = {}
    for name in names(given.only):
        torch._dynamo.reset()
        print(f"families: {name}", file=sys.stderr)
        try:
            model = model_of(name)
            calls = [*calls_of(name, model)]
        except Exception as error:  # another version of transformers may refuse a configuration
            told = f"{type(error).__name__}: {error}".split("\n")[0]
            rows[name] = {"verdict": "not run", "reasons": [told]}
            continue
        rows[name] = measure(model, calls)
    cells = [
        [name, *(str(row.get(k, "")) for k in list(COLUMNS)[1:])] for name, row in rows.items()
    ]
    show(table("models at three sizes", list(COLUMNS.values()), cells))
    for name, row in rows.items():
        for reason in row["reasons"]:
            print(f"{name}: {reason}")
    if given.json:
        write_json({"machine": machine(on_cpu=True), "models": rows}, given.json)
    return int(any(row["verdict"] == "FAILED" for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
