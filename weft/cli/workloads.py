"""The workloads of `weft bench`, as data: a suite is a list of names, a name a program and sizes.

WORKLOADS["softmax 28x512x512"].text        # "nn.Softmax(dim=-1)(torch.randn(28,512,512))"
CUDA_WORKLOADS["matmul 4096 bf16"].text     # f32 is without TF32; bf16 where LLMs use it
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

LLAMA_LAYER = """
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
config = LlamaConfig(hidden_size={}, intermediate_size={}, num_attention_heads={},
                     num_key_value_heads={}, attn_implementation="sdpa")
class Past:
    def __init__(self, *past):
        self.past = past
    def update(self, *new, **_):
        return tuple(torch.cat([a, b], 2) for a, b in zip(self.past, new))
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary = LlamaRotaryEmbedding(config)
        self.layer = LlamaDecoderLayer(config, layer_idx=0)
    def forward(self, x, *past):
        start = past[0].shape[2] if past else 0
        turned = self.rotary(x, torch.arange(start, start + x.shape[1], device=x.device)[None])
        cache = Past(*past) if past else None
        return self.layer(x, past_key_values=cache, position_embeddings=turned)
"""  # sizes of a layer: hidden, intermediate, heads, heads of keys and values
TINY_LLAMA = LLAMA_LAYER.format(2048, 5632, 32, 4)
LLAMA_7B = LLAMA_LAYER.format(4096, 11008, 32, 32)
LINEAR = "nn.Linear({1}, {2}, bias=False){to}(torch.randn({0},{1}){to})"
PROJECTION = "nn.Linear({0}, {1}, bias=False){to}(torch.randn({2},{0}){to})"
CAUSAL = ", is_causal=True"


def attention(query: str, key: str = "", more: str = "") -> str:
    q, k = (f"torch.randn({shape}){{to}}" for shape in (query, key or query))
    return f"F.scaled_dot_product_attention({q}, {k}, {k}{more})"


def activated(module: str) -> str:
    return f"nn.Sequential(nn.Linear({{1}},{{2}}), nn.{module}())(torch.randn({{0}},{{1}}))"


# Programs by group and by name, in which # stands for a number. {0} {1} ... are the numbers, {x} is
# a tensor of these sizes, {to} a conversion to bf16 where the workload's name ends so.
PROGRAMS = {
    "norm": {
        "RMSNorm #x#": "nn.RMSNorm({1}){to}({x})",
        "layer norm #x#": "nn.LayerNorm({1})({x})",
        "add + layer norm #x#": "nn.LayerNorm({1})({x} + {x})",
        "group norm #x#x#x#": "nn.GroupNorm(8, {1})({x})",
        "batch norm + ReLU #x#x#x#": "nn.Sequential(nn.BatchNorm2d({1}), nn.ReLU())({x})",
    },
    "softmax": {
        "softmax #x#x#": "nn.Softmax(dim=-1)({x})",
        "softmax #x#": "torch.softmax({x}, 1)",
        "log-softmax #x#": "F.log_softmax({x}, 1)",
        "column softmax #x#": "torch.softmax({x}, 0)",
        "masked softmax #x#x#": "torch.softmax({x} * 0.125 + "
        "torch.full(({1},{2}), -1e9).triu(1){to}, -1)",
    },
    "pointwise": {
        "call overhead #x#": "torch.relu({x} + {x})",
        "add #x#": "{x} + {x}",
        "GELU #x#": "F.gelu({x})",
        "gated chain #x#": "(lambda a, b: torch.sigmoid(a) * b + torch.tanh(b) * 0.5)({x}, {x})",
        "SiLU gate #x#": "F.silu({x}) * {x}",
        "chain of #": "(lambda a: torch.where(a > 0, a * a, torch.exp(a)).clamp(max=3.0) - 1)({x})",
    },
    "reduction": {
        "row sum #x#": "{x}.sum(1)",
        "column sum #x#": "{x}.sum(0)",
        "full sum #x#": "{x}.sum()",
        "full max #x#": "{x}.amax()",
        "argmax #x#": "{x}.argmax(1)",
        "variance #x#": "{x}.var(1)",
        "middle mean #x#x#": "{x}.mean(1)",
    },
    "layout": {
        "transpose #x#": "{x}.t().contiguous()",
        "NCHW to NHWC #x#x#x#": "{x}.permute(0,2,3,1).contiguous()",
        "split heads #x#x#x#": "torch.randn({0},{1},{2}*{3}).view({0},{1},{2},{3}).transpose(1,2)"
        ".contiguous()",
        "cat # of #x#": "torch.cat([torch.randn({1},{2}), torch.randn({1},{2}), "
        "torch.randn({1},{2})], 1)",
    },
    "matmul": {
        "matmul #": "torch.randn({0},{0}){to} @ torch.randn({0},{0}){to}",
        "matmul #x#x#": "torch.randn({0},{1}) @ torch.randn({1},{2})",
        "matmul A @ B.T #x#x#": "torch.randn({0},{1}) @ torch.randn({2},{1}).t()",
        "batched matmul #x#x#x#": "torch.randn({0},{1},{2}) @ torch.randn({0},{2},{3})",
        "GEMV #x#x#": LINEAR,
        "matrix-vector #x#": "{x} @ torch.randn({1})",
        "MLP #x#-# + GELU": activated("GELU"),
    },
    "linear": {
        "linear #x#x#": LINEAR,
        "linear + ReLU #x#x#": activated("ReLU"),
        "linear + GELU #x#x#": activated("GELU"),
        "linear + SiLU #x#x#": activated("SiLU"),
        "linear + tanh #x#x#": activated("Tanh"),
        "linear + sigmoid #x#x#": activated("Sigmoid"),
        "LLM projection #-#, # tokens": PROJECTION,
        "LLM projection #-#, # token": PROJECTION,
    },
    "attention": {
        "attention #x#x#": attention("1,{0},{1},{2}"),
        "attention #x#x#x#": attention("{0},{1},{2},{3}"),
        "causal attention #x#x#": attention("1,{0},{1},{2}", more=CAUSAL),
        "causal attention #x#x#x#": attention("{0},{1},{2},{3}", more=CAUSAL),
        "attention, short #x#x#x#": attention("{0},{1},{2},{3}"),
        "attention, long #x#x#": attention("1,{0},{1},{2}", more=CAUSAL),
        "attention, one query #x#x#": attention("1,{0},1,{2}", "1,{0},{1},{2}"),
        "attention, grouped #/#x#x#": attention(
            "1,{0},{2},{3}", "1,{1},{2},{3}", CAUSAL + ", enable_gqa=True"
        ),
        "attention, mask #x#x#": attention(
            "1,{0},{1},{2}", more=", attn_mask=torch.randn(1,1,{1},{1})"
        ),
    },
    "convolution": {
        "conv #x# #ch #x#": "nn.Conv2d({2}, {2}, {0}, padding=1)(torch.randn(1,{2},{3},{4}))",
        "conv #x# # to #, #x#": "nn.Conv2d({2}, {3}, {0})(torch.randn(1,{2},{4},{5}))",
        "conv depthwise #x# #ch #x#": "nn.Conv2d({2}, {2}, {0}, padding=1, groups={2})"
        "(torch.randn(1,{2},{3},{4}))",
        "conv #x# stride #, # to #": "nn.Conv2d({3}, {4}, {0}, stride={2}, padding=1)"
        "(torch.randn(1,{3},56,56))",
        "conv #x# first layer #x#": "nn.Conv2d(3, 64, {0}, stride=2, padding=3)"
        "(torch.randn(1,3,{2},{3}))",
        "conv + batch norm + ReLU #ch": "nn.Sequential(nn.Conv2d({0}, {0}, 3, padding=1, "
        "bias=False), nn.BatchNorm2d({0}), nn.ReLU())(torch.randn(1,{0},28,28))",
    },
    "pooling": {
        "max pool #x# s# #x#x#": "nn.MaxPool2d({0}, {2}, 1)(torch.randn(1,{3},{4},{5}))",
        "average pool #x# #x#x#x#": "nn.AvgPool2d({0})(torch.randn({2},{3},{4},{5}))",
        "global average #x#x#x#": "nn.AdaptiveAvgPool2d(1)({x})",
    },
    "indexing": {
        "embedding # of #x#": "nn.Embedding({1},{2})(torch.randint(0,{1},({0},)))",
        "embedding bag #x# of #x#": "nn.EmbeddingBag({2},{3})(torch.randint(0,{2},({0},{1})))",
        "cross-entropy #x#": "F.cross_entropy({x}, torch.randint(0,{1},({0},)))",
        "row cumsum #x#": "torch.cumsum({x}, 1)",
        "column cumsum #x#": "torch.cumsum({x}, 0)",
        "gather #x#": "torch.gather({x}, 1, torch.randint(0,{1},({0},{1})))",
        "scatter add #x#": "torch.scatter_add(torch.zeros({1},{1}), 0, "
        "torch.randint(0,{1},({0},{1})), {x})",
    },
    "block": {
        "MLP #x#-#-#": "nn.Sequential(nn.Linear({1},{2}), nn.GELU(), nn.Linear({2},{3}))"
        "(torch.randn({0},{1}))",
        "TinyLlama decoder layer, # tokens": TINY_LLAMA
        + "Layer(){to}(torch.randn(1,{0},2048){to})",
        "TinyLlama decoder layer, # token": TINY_LLAMA
        + "Layer()(torch.randn(1,{0},2048), torch.randn(1,4,512,64), torch.randn(1,4,512,64))",
        "Llama-#B decoder layer, # tokens": LLAMA_7B + "Layer(){to}(torch.randn(1,{1},4096){to})",
        "Llama-#B decoder layer, # token": LLAMA_7B + "Layer(){to}(torch.randn(1,{1},4096){to}, "
        "torch.randn(1,32,512,128){to}, torch.randn(1,32,512,128){to})",
        "BERT encoder layer, # tokens": """
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer
BertLayer(BertConfig(attn_implementation="sdpa"))(torch.randn(1,{0},768))
""",
        "ResNet block #ch #x#": """
from transformers.models.resnet.modeling_resnet import ResNetBasicLayer
ResNetBasicLayer({0}, {0})(torch.randn(1,{0},{1},{2}))
""",
    },
    "model": {
        "Llama #x#, # tokens": """
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=8000, hidden_size={1}, intermediate_size=1408,
    num_hidden_layers={0}, num_attention_heads=8, num_key_value_heads=4))
model(input_ids=torch.randint(0, 8000, (1,{2})), use_cache=False).logits
""",
        "BERT #x#, # tokens": """
from transformers import BertConfig, BertModel
model = BertModel(BertConfig(vocab_size=8000, hidden_size={1}, num_hidden_layers={0},
    num_attention_heads=4, intermediate_size=1024))
model(input_ids=torch.randint(0, 8000, (1,{2}))).last_hidden_state
""",
        "ViT #x#, #x#": """
from transformers import ViTConfig, ViTModel
model = ViTModel(ViTConfig(hidden_size={1}, num_hidden_layers={0}, num_attention_heads=3,
    intermediate_size=768))
model(pixel_values=torch.randn(1,3,{2},{3})).last_hidden_state
""",
        "ResNet-#, #x#": """
from transformers import ResNetConfig, ResNetModel
model = ResNetModel(ResNetConfig(hidden_sizes=[64,128,256,512], depths=[2,2,2,2],
    layer_type="basic"))
model(pixel_values=torch.randn(1,3,{1},{2})).last_hidden_state
""",
    },
}
CPU = """
RMSNorm 2048x2048; RMSNorm 4096x4096; layer norm 4096x1024; add + layer norm 512x768
group norm 4x64x56x56; batch norm + ReLU 4x64x56x56
softmax 28x512x512; log-softmax 512x32000; column softmax 1024x4096; masked softmax 12x512x512
call overhead 16x16; add 4096x1024; add 4096x4096; GELU 4096x1024; gated chain 2048x1024
SiLU gate 4096x5632; chain of 1000003
row sum 4096x1024; column sum 4096x1024; full sum 4096x1024; full sum 8192x4096
full max 4096x1024; argmax 4096x1024; variance 4096x1024; middle mean 64x128x512
transpose 1024x1024; transpose 4096x4096; NCHW to NHWC 8x64x56x56; split heads 8x512x12x64
cat 3 of 2048x1024
matmul 512; matmul 1024; matmul 2048; matmul 1001x777x333; matmul 8192x64x64; matmul 32x8192x32
matmul A @ B.T 512x1024x768; batched matmul 64x128x64x128; matmul 1024 bf16
GEMV 1x2048x5632; matrix-vector 4096x4096
linear 128x2048x5632; linear 128x5632x2048; linear + ReLU 128x768x3072; linear + GELU 128x768x3072
linear + SiLU 128x768x3072; linear + tanh 128x768x3072; linear + sigmoid 128x768x3072
linear 128x2048x5632 bf16
attention 12x1024x64; causal attention 12x1024x64; attention, short 8x12x64x64
attention, long 4x4096x64; attention, one query 32x2048x64; attention, grouped 32/4x512x64
attention, mask 12x512x64
conv 3x3 64ch 56x56; conv 1x1 256 to 64, 56x56; conv depthwise 3x3 128ch 56x56
conv 3x3 stride 2, 64 to 128; conv 7x7 first layer 224x224; conv + batch norm + ReLU 128ch
max pool 3x3 s2 64x112x112; average pool 2x2 8x64x56x56; global average 8x512x7x7
embedding 512 of 32000x768; embedding bag 256x32 of 50000x128; cross-entropy 512x32000
row cumsum 1024x4096; column cumsum 4096x1024; gather 4096x1024; scatter add 4096x1024
MLP 64x512-2048-512; TinyLlama decoder layer, 128 tokens; TinyLlama decoder layer, 1 token
BERT encoder layer, 128 tokens; ResNet block 64ch 56x56
Llama 4x512, 64 tokens; BERT 4x256, 128 tokens; ViT 4x192, 224x224; ResNet-18, 224x224
"""
CUDA = """
RMSNorm 4096x4096; RMSNorm 8192x4096 bf16; RMSNorm 32x2048; layer norm 16384x1024
add + layer norm 8192x768; group norm 16x64x112x112; batch norm + ReLU 16x64x112x112
softmax 128x512x512; softmax 262144x64; log-softmax 2048x32000; column softmax 4096x4096
masked softmax 32x1024x1024 bf16
call overhead 16x16; add 8192x4096; GELU 8192x4096; gated chain 8192x2048; SiLU gate 4096x11008 bf16
chain of 20000003
row sum 8192x4096; column sum 8192x4096; full sum 16384x4096; full max 8192x4096; argmax 8192x4096
variance 8192x4096; middle mean 256x128x1024
transpose 4096x4096; transpose 8192x8192 bf16; NCHW to NHWC 32x64x112x112; split heads 32x1024x16x64
cat 3 of 8192x1024
matmul 512; matmul 1024; matmul 2048; matmul 4096; matmul 512 bf16; matmul 1024 bf16
matmul 2048 bf16; matmul 4096 bf16; matmul 1001x777x333; matmul A @ B.T 2048x1024x4096
matmul 64x65536x64; batched matmul 256x128x64x128; MLP 2048x1024-4096 + GELU
LLM projection 4096-4096, 32 tokens bf16; LLM projection 4096-4096, 128 tokens bf16
LLM projection 4096-4096, 512 tokens bf16; LLM projection 4096-11008, 32 tokens bf16
LLM projection 4096-11008, 128 tokens bf16; LLM projection 4096-11008, 512 tokens bf16
LLM projection 11008-4096, 32 tokens bf16; LLM projection 11008-4096, 128 tokens bf16
LLM projection 11008-4096, 512 tokens bf16; LLM projection 4096-11008, 1 token bf16
attention 8x12x1024x64; causal attention 1x32x2048x128 bf16; attention, grouped 32/8x2048x128 bf16
attention, one query 32x4096x128 bf16
TinyLlama decoder layer, 32 tokens bf16; TinyLlama decoder layer, 128 tokens bf16
TinyLlama decoder layer, 512 tokens bf16; TinyLlama decoder layer, 512 tokens
Llama-7B decoder layer, 512 tokens bf16; Llama-7B decoder layer, 1 token bf16
"""


@dataclass(frozen=True)
class Workload:
    group: str
    text: str


def workload(name: str) -> Workload:
    """The program of that name, in the sizes that the name gives."""
    plain = name.removesuffix(" bf16")
    to = "" if name == plain else ".bfloat16()"
    sizes: list[str] = re.findall(r"\d+", plain)
    program = re.sub(r"\d+", "#", plain)
    group, text = next((g, texts[program]) for g, texts in PROGRAMS.items() if program in texts)
    x = f"torch.randn({','.join(sizes)}){to}"
    return Workload(group, text.strip().format(*sizes, x=x, to=to))


def suite(names: str) -> dict[str, Workload]:
    return {name: workload(name) for name in re.split("; |\n", names.strip())}


def in_turn(workloads: dict[str, Workload]) -> dict[str, Workload]:
    """One of each group after the other: a bench that runs out of time has seen every group."""
    groups = [[n for n, w in workloads.items() if w.group == group] for group in PROGRAMS]
    return {n: workloads[n] for turn in zip_longest(*groups) for n in turn if n is not None}


WORKLOADS, CUDA_WORKLOADS = suite(CPU), in_turn(suite(CUDA))
