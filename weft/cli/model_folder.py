"""Loads a model folder: config.json, and weights (*.safetensors) if there are any; or model.gguf.

load_folder(Path("tinyllama"), meta=False)   # an eager model and example inputs
"""

from pathlib import Path
from typing import Any

import torch

import weft
from weft.cli.program import Source, user_code
from weft.core.errors import SourceError

SEQUENCE = 32  # tokens of the example input


def load_folder(folder: Path, *, meta: bool) -> Source:
    """The model that a folder describes; SourceError if it has no config.json.

    With `meta` the weights have no values.
    """
    if not (folder / "config.json").is_file():
        raise SourceError(f"the model folder {folder} has no config.json")
    weights = any(folder.glob("*.safetensors"))
    return load_model(str(folder), folder.name, weights=weights, meta=meta)


def load_gguf_file(path: Path) -> Source:
    """The model of a GGUF file, with its weights in the file's blocks."""
    model: Any = weft.load_gguf(path)
    return Source(model, (), example_inputs(model, model.config), path.stem, file=str(path))


def load_hub_name(name: str, *, meta: bool) -> Source | None:
    """The model of a name in the local hub cache; None if it or transformers is missing."""
    try:
        from transformers.utils import cached_file
    except ImportError:
        return None
    try:
        config = cached_file(name, "config.json", local_files_only=True)
    except (OSError, ValueError):
        return None
    weights = config is not None and any(Path(config).parent.glob("*.safetensors"))
    return load_model(name, name, weights=weights, meta=meta)


def load_model(name: str, title: str, *, weights: bool, meta: bool) -> Source:
    try:
        import transformers
    except ImportError:
        raise SourceError("a model folder needs transformers: pip install transformers") from None
    with user_code(title):
        config: Any = transformers.AutoConfig.from_pretrained(name, local_files_only=True)
        model_class = architecture(transformers, config)
        if weights and not meta:
            model = model_class.from_pretrained(name, local_files_only=True)
        else:
            with torch.device("meta" if meta else "cpu"):
                model = model_class._from_config(config)
        with torch.device("meta" if meta else "cpu"):
            inputs = example_inputs(model.eval(), config)
    return Source(model, (), inputs, title, file=title)


def architecture(transformers: Any, config: Any) -> Any:
    """The class that the config names, else the one that an AutoModel class has for the config.

    SourceError if there is none.
    """
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    kinds = ("SpeechSeq2Seq", "Seq2SeqLM") if config.is_encoder_decoder else ("CausalLM",)
    autos = [getattr(transformers, f"AutoModelFor{kind}") for kind in kinds]
    for auto in (*autos, transformers.AutoModel):
        if type(config) in auto._model_mapping:
            return auto._model_mapping[type(config)]
    raise SourceError(f"transformers has no model for a config of type {config.model_type}")


def example_inputs(model: Any, config: Any) -> dict[str, Any]:
    """Random tokens, images or audio, as the model's main input, in the sizes of its config."""
    make = {
        "input_ids": token_inputs,
        "pixel_values": image_inputs,
        "input_features": audio_inputs,
    }.get(model.main_input_name)
    if make is None:
        raise SourceError(f"no example input for models that take {model.main_input_name}")
    inputs = make(config)
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = token_inputs(config)["input_ids"]
    if hasattr(config, "use_cache"):
        inputs["use_cache"] = False
    return inputs


def token_inputs(config: Any) -> dict[str, Any]:
    text = config.get_text_config()
    limits = ("max_position_embeddings", "max_target_positions")
    length = min(SEQUENCE, *(getattr(text, limit, None) or SEQUENCE for limit in limits))
    return {"input_ids": torch.randint(0, text.vocab_size, (1, length))}


def image_inputs(config: Any) -> dict[str, Any]:
    size = getattr(config, "image_size", 224)
    height, width = size if isinstance(size, tuple | list) else (size, size)
    return {"pixel_values": torch.randn(1, getattr(config, "num_channels", 3), height, width)}


def audio_inputs(config: Any) -> dict[str, Any]:
    return {"input_features": torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions)}
