"""llama.cpp as a peer: its library by ctypes, on GGUF files of random weights.

write_gguf(path, Sizes(2048, 5632, 32, 4, 9, 256), "Q4_0")
model = Llama(folder, path, threads=2)      # a folder that has libllama and libggml
model.decode([1] * 512)                     # tokens at the next positions
model.cut(512)                              # forgets positions from 512 on
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.errors import SourceError, WeftError

ROOM = 512  # bytes: the library's structs of parameters are shorter in all its versions
LIBRARY = ("libllama.so", "libllama.v*.so", "libllama.*.so")
CONTEXT = 2048


@dataclass(frozen=True)
class Sizes:
    """What a Llama's GGUF file says of it."""

    hidden: int
    inner: int
    heads: int
    key_heads: int
    layers: int
    words: int


class Parameters(ctypes.Structure):
    """By value, in memory: the library writes and reads what it has of them, in front."""

    _fields_ = [("words", ctypes.c_uint32 * (ROOM // 4))]


class Batch(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int32), ("rest", ctypes.c_void_p * 6)]


def write_gguf(path: Path, sizes: Sizes, kind: str) -> None:
    """A Llama of random weights; `kind` is F16, Q8_0 or Q4_0. SourceError for other kinds."""
    gguf: Any = importlib.import_module("gguf")
    made, random = gguf.GGUFWriter(str(path), "llama"), np.random.default_rng(0)
    made.add_context_length(CONTEXT)
    made.add_embedding_length(sizes.hidden)
    made.add_block_count(sizes.layers)
    made.add_feed_forward_length(sizes.inner)
    made.add_head_count(sizes.heads)
    made.add_head_count_kv(sizes.key_heads)
    made.add_layer_norm_rms_eps(1e-5)
    made.add_rope_dimension_count(sizes.hidden // sizes.heads)
    made.add_vocab_size(sizes.words)
    made.add_tokenizer_model("none")
    for name, rows, columns in matrices(sizes):
        data = random_blocks(random, rows, columns, kind)
        made.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    norms = [f"blk.{i}.{which}_norm" for i in range(sizes.layers) for which in ("attn", "ffn")]
    for name in (*norms, "output_norm"):
        made.add_tensor(f"{name}.weight", np.ones(sizes.hidden, np.float32))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def matrices(sizes: Sizes) -> list[tuple[str, int, int]]:
    """Name, rows and columns of each matrix."""
    h, n = sizes.hidden, sizes.inner
    keys = h // sizes.heads * sizes.key_heads
    of_layer = {
        "attn_q": (h, h), "attn_k": (keys, h), "attn_v": (keys, h), "attn_output": (h, h),
        "ffn_gate": (n, h), "ffn_up": (n, h), "ffn_down": (h, n),
    }  # fmt: skip
    ends = [("token_embd.weight", sizes.words, h), ("output.weight", sizes.words, h)]
    layers = [
        (f"blk.{i}.{name}.weight", *size)
        for i in range(sizes.layers)
        for name, size in of_layer.items()
    ]
    return ends + layers


def random_blocks(random: np.random.Generator, rows: int, columns: int, kind: str) -> Any:
    """Rows of f16, or of blocks of 32 weights: a scale in f16, then codes of 8 or 4 bits."""
    if kind == "F16":
        return (random.standard_normal((rows, columns), np.float32) * columns**-0.5).astype("f2")
    if kind not in ("Q8_0", "Q4_0"):
        raise SourceError(f"a file of llama.cpp is written in F16, Q8_0 or Q4_0, not in {kind}")
    if columns % 32:
        raise SourceError(f"{kind} has blocks of 32 weights, which rows of {columns} are not")
    codes, top = (32, 127) if kind == "Q8_0" else (16, 8)
    blocks = random.integers(0, 256, (rows, columns // 32, 2 + codes), np.uint8)
    scale = np.float16(1.7 / top * columns**-0.5)
    blocks[:, :, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def library(folder: str, *patterns: str) -> Path:
    """The library of the first pattern that a folder has; SourceError if it has none."""
    for pattern in patterns:
        for path in sorted(Path(folder).glob(pattern)):
            if "common" not in path.name:
                return path
    raise SourceError(f"{folder} has no {patterns[0]} of llama.cpp")


def version(folder: str) -> str:
    """The name of the library, which has its version."""
    return library(folder, *LIBRARY).name


def loaded(folder: str, *patterns: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(library(folder, *patterns)), mode=ctypes.RTLD_GLOBAL)


class Llama:
    """A model in llama.cpp's memory; WeftError if the library cannot load it."""

    def __init__(self, folder: str, path: Path, threads: int) -> None:
        base = loaded(folder, "libggml.so", "libggml.v*.so", "libggml.*.so")
        if hasattr(base, "ggml_backend_load_all_from_path"):
            base.ggml_backend_load_all_from_path(folder.encode())
        self.lib = lib = loaded(folder, *LIBRARY)
        for name in ("llama_model_default_params", "llama_context_default_params"):
            getattr(lib, name).restype = Parameters
        for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_get_memory"):
            getattr(lib, name).restype = ctypes.c_void_p
        lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Parameters]
        lib.llama_init_from_model.argtypes = [ctypes.c_void_p, Parameters]
        lib.llama_get_memory.argtypes = [ctypes.c_void_p]
        lib.llama_memory_seq_rm.argtypes = [ctypes.c_void_p, *[ctypes.c_int32] * 3]
        lib.llama_memory_seq_rm.restype = ctypes.c_bool
        lib.llama_batch_get_one.argtypes = [ctypes.POINTER(ctypes.c_int32), ctypes.c_int32]
        lib.llama_batch_get_one.restype = Batch
        lib.llama_decode.argtypes = [ctypes.c_void_p, Batch]
        lib.llama_set_n_threads.argtypes = [ctypes.c_void_p, *[ctypes.c_int32] * 2]
        lib.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        lib.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        lib.llama_backend_init()
        model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        if not model:
            raise WeftError(f"llama.cpp cannot load {path.name}")
        chosen = lib.llama_context_default_params()
        chosen.words[0] = CONTEXT  # n_ctx, the first field
        self.context = lib.llama_init_from_model(model, chosen)
        if not self.context:
            raise WeftError("llama.cpp has no memory for a context")
        lib.llama_set_n_threads(self.context, threads, threads)

    def decode(self, tokens: Sequence[int]) -> Any:
        """Computes tokens at the next positions; a pointer to the scores after the last."""
        held = (ctypes.c_int32 * len(tokens))(*tokens)
        if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(held, len(tokens))):
            raise WeftError("llama.cpp's decode failed")
        return self.lib.llama_get_logits_ith(self.context, -1)

    def cut(self, position: int) -> None:
        """Forgets what is cached from a position on."""
        memory = self.lib.llama_get_memory(self.context)
        self.lib.llama_memory_seq_rm(memory, 0, position, -1)
