"""The workloads of `weft bench cpu`, at their own sizes and at small ones.

small("torch.randn(4096,1024).sum(1)")     # "torch.randn(130,72).sum(1)"
"""

from __future__ import annotations

import re

from tests.gpu.corpus.program import Program, of_text
from weft.cli.workloads import WORKLOADS

# What stands for each size; some programs need one to divide another.
SMALL = {
    1000003: 10_007, 50000: 101, 32000: 211, 8192: 131, 8000: 97, 5632: 88, 4096: 130, 3072: 80,
    2048: 128, 1408: 56, 1024: 72, 1001: 101, 777: 77, 768: 192, 512: 48, 333: 35, 256: 24,
    224: 33, 128: 24, 112: 19, 64: 16, 56: 9, 32: 8, 28: 7,
}  # fmt: skip
# A block holds several products, and may compute one again for each row of another.
SMALLER = {**SMALL, 5632: 40, 2048: 64, 512: 32, 256: 16, 128: 12, 64: 8}
# Their configurations name no size for what the text's own sizes must fit.
OWN = {
    "BERT encoder layer, 128 tokens": """
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer
BertLayer(BertConfig(hidden_size=48, num_attention_heads=4, intermediate_size=80,
    attn_implementation="sdpa"))(torch.randn(1,19,48))
""",
    "ViT 4x192, 224x224": """
from transformers import ViTConfig, ViTModel
model = ViTModel(ViTConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
    intermediate_size=40, image_size=32, patch_size=8))
model(pixel_values=torch.randn(1,3,32,32)).last_hidden_state
""",
}


def small(text: str, sizes: dict[int, int] = SMALL) -> str:
    """The text with the sizes of the table; layers are two."""
    text = text.replace("num_hidden_layers=4", "num_hidden_layers=2")
    return re.sub(r"\b\d+\b", lambda n: str(sizes.get(int(n[0]), n[0])), text)


def workloads() -> list[Program]:
    found: list[Program] = []
    for name, w in WORKLOADS.items():
        sizes = SMALLER if w.group in ("block", "model") else SMALL
        own = OWN[name].strip() if name in OWN else small(w.text, sizes)
        found += [of_text(f"{name}, small", own), of_text(name, w.text, real=True)]
    return found
