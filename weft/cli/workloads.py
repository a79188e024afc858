"""The programs of `weft bench cpu`, as data: a name, its group, and `-c` text.

WORKLOADS["softmax 28x512x512"].text
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    group: str
    text: str


def attention(query: str, key: str, more: str = "", like: str = "torch.randn({})") -> str:
    q, k = like.format(query), like.format(key)
    return f"F.scaled_dot_product_attention({q}, {k}, {k}{more})"


ACTIVATIONS = {"ReLU": "ReLU", "GELU": "GELU", "SiLU": "SiLU", "tanh": "Tanh", "sigmoid": "Sigmoid"}
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
GROUPS = {
    "norm": {
        "RMSNorm 2048x2048": "nn.RMSNorm(2048)(torch.randn(2048,2048))",
        "RMSNorm 4096x4096": "nn.RMSNorm(4096)(torch.randn(4096,4096))",
        "layer norm 4096x1024": "nn.LayerNorm(1024)(torch.randn(4096,1024))",
        "add + layer norm 512x768": "nn.LayerNorm(768)"
        "(torch.randn(512,768) + torch.randn(512,768))",
        "group norm 4x64x56x56": "nn.GroupNorm(8, 64)(torch.randn(4,64,56,56))",
        "batch norm + ReLU 4x64x56x56": "nn.Sequential(nn.BatchNorm2d(64), nn.ReLU())"
        "(torch.randn(4,64,56,56))",
    },
    "softmax": {
        "softmax 28x512x512": "nn.Softmax(dim=-1)(torch.randn(28,512,512))",
        "log-softmax 512x32000": "F.log_softmax(torch.randn(512,32000), 1)",
        "column softmax 1024x4096": "torch.softmax(torch.randn(1024,4096), 0)",
        "masked softmax 12x512x512": "torch.softmax(torch.randn(12,512,512) * 0.125 "
        "+ torch.full((512,512), -1e9).triu(1), -1)",
    },
    "pointwise": {
        "call overhead 16x16": "torch.relu(torch.randn(16,16) + torch.randn(16,16))",
        "add 4096x1024": "torch.randn(4096,1024) + torch.randn(4096,1024)",
        "add 4096x4096": "torch.randn(4096,4096) + torch.randn(4096,4096)",
        "GELU 4096x1024": "F.gelu(torch.randn(4096,1024))",
        "gated chain 2048x1024": "(lambda a, b: torch.sigmoid(a) * b + torch.tanh(b) * 0.5)"
        "(torch.randn(2048,1024), torch.randn(2048,1024))",
        "SiLU gate 4096x5632": "F.silu(torch.randn(4096,5632)) * torch.randn(4096,5632)",
        "chain of 1000003": "(lambda a: torch.where(a > 0, a * a, torch.exp(a)).clamp(max=3.0) - 1)"
        "(torch.randn(1000003))",
    },
    "reduction": {
        "row sum 4096x1024": "torch.randn(4096,1024).sum(1)",
        "column sum 4096x1024": "torch.randn(4096,1024).sum(0)",
        "full sum 4096x1024": "torch.randn(4096,1024).sum()",
        "full sum 8192x4096": "torch.randn(8192,4096).sum()",
        "full max 4096x1024": "torch.randn(4096,1024).amax()",
        "argmax 4096x1024": "torch.randn(4096,1024).argmax(1)",
        "variance 4096x1024": "torch.randn(4096,1024).var(1)",
        "middle mean 64x128x512": "torch.randn(64,128,512).mean(1)",
    },
    "layout": {
        "transpose 1024x1024": "torch.randn(1024,1024).t().contiguous()",
        "transpose 4096x4096": "torch.randn(4096,4096).t().contiguous()",
        "NCHW to NHWC 8x64x56x56": "torch.randn(8,64,56,56).permute(0,2,3,1).contiguous()",
        "split heads 8x512x12x64": "torch.randn(8,512,768).view(8,512,12,64).transpose(1,2)"
        ".contiguous()",
        "cat 3 of 2048x1024": "torch.cat([torch.randn(2048,1024), torch.randn(2048,1024), "
        "torch.randn(2048,1024)], 1)",
    },
    "matmul": {
        "matmul 512": "torch.randn(512,512) @ torch.randn(512,512)",
        "matmul 1024": "torch.randn(1024,1024) @ torch.randn(1024,1024)",
        "matmul 2048": "torch.randn(2048,2048) @ torch.randn(2048,2048)",
        "matmul 1001x777x333": "torch.randn(1001,777) @ torch.randn(777,333)",
        "matmul 8192x64x64": "torch.randn(8192,64) @ torch.randn(64,64)",
        "matmul 32x8192x32": "torch.randn(32,8192) @ torch.randn(8192,32)",
        "matmul A @ B.T 512x1024x768": "torch.randn(512,1024) @ torch.randn(768,1024).t()",
        "batched matmul 64x128x64x128": "torch.randn(64,128,64) @ torch.randn(64,64,128)",
        "matmul 1024 bf16": "torch.randn(1024,1024).bfloat16() @ torch.randn(1024,1024).bfloat16()",
        "GEMV 1x2048x5632": "nn.Linear(2048, 5632, bias=False)(torch.randn(1,2048))",
        "matrix-vector 4096x4096": "torch.randn(4096,4096) @ torch.randn(4096)",
    },
    "linear": {
        "linear 128x2048x5632": "nn.Linear(2048, 5632, bias=False)(torch.randn(128,2048))",
        "linear 128x5632x2048": "nn.Linear(5632, 2048, bias=False)(torch.randn(128,5632))",
        **{
            f"linear + {name} 128x768x3072": f"nn.Sequential(nn.Linear(768,3072), nn.{module}())"
            "(torch.randn(128,768))"
            for name, module in ACTIVATIONS.items()
        },
        "linear 128x2048x5632 bf16": "nn.Linear(2048, 5632, bias=False).bfloat16()"
        "(torch.randn(128,2048).bfloat16())",
    },
    "attention": {
        "attention 12x1024x64": attention("1,12,1024,64", "1,12,1024,64"),
        "causal attention 12x1024x64": attention(
            "1,12,1024,64", "1,12,1024,64", ", is_causal=True"
        ),
        "attention, short 8x12x64x64": attention("8,12,64,64", "8,12,64,64"),
        "attention, long 4x4096x64": attention("1,4,4096,64", "1,4,4096,64", ", is_causal=True"),
        "attention, one query 32x2048x64": attention("1,32,1,64", "1,32,2048,64"),
        "attention, grouped 32/4x512x64": attention(
            "1,32,512,64", "1,4,512,64", ", is_causal=True, enable_gqa=True"
        ),
        "attention, mask 12x512x64": attention(
            "1,12,512,64", "1,12,512,64", ", attn_mask=torch.randn(1,1,512,512)"
        ),
    },
    "convolution": {
        "conv 3x3 64ch 56x56": "nn.Conv2d(64, 64, 3, padding=1)(torch.randn(1,64,56,56))",
        "conv 1x1 256 to 64, 56x56": "nn.Conv2d(256, 64, 1)(torch.randn(1,256,56,56))",
        "conv depthwise 3x3 128ch 56x56": "nn.Conv2d(128, 128, 3, padding=1, groups=128)"
        "(torch.randn(1,128,56,56))",
        "conv 3x3 stride 2, 64 to 128": "nn.Conv2d(64, 128, 3, stride=2, padding=1)"
        "(torch.randn(1,64,56,56))",
        "conv 7x7 first layer 224x224": "nn.Conv2d(3, 64, 7, stride=2, padding=3)"
        "(torch.randn(1,3,224,224))",
        "conv + batch norm + ReLU 128ch": "nn.Sequential(nn.Conv2d(128, 128, 3, padding=1, "
        "bias=False), nn.BatchNorm2d(128), nn.ReLU())(torch.randn(1,128,28,28))",
    },
    "pooling": {
        "max pool 3x3 s2 64x112x112": "nn.MaxPool2d(3, 2, 1)(torch.randn(1,64,112,112))",
        "average pool 2x2 8x64x56x56": "nn.AvgPool2d(2)(torch.randn(8,64,56,56))",
        "global average 8x512x7x7": "nn.AdaptiveAvgPool2d(1)(torch.randn(8,512,7,7))",
    },
    "indexing": {
        "embedding 512 of 32000x768": "nn.Embedding(32000,768)(torch.randint(0,32000,(512,)))",
        "embedding bag 256x32 of 50000x128": "nn.EmbeddingBag(50000,128)"
        "(torch.randint(0,50000,(256,32)))",
        "cross-entropy 512x32000": "F.cross_entropy(torch.randn(512,32000), "
        "torch.randint(0,32000,(512,)))",
        "row cumsum 1024x4096": "torch.cumsum(torch.randn(1024,4096), 1)",
        "column cumsum 4096x1024": "torch.cumsum(torch.randn(4096,1024), 0)",
        "gather 4096x1024": "torch.gather(torch.randn(4096,1024), 1, "
        "torch.randint(0,1024,(4096,1024)))",
        "scatter add 4096x1024": "torch.scatter_add(torch.zeros(1024,1024), 0, "
        "torch.randint(0,1024,(4096,1024)), torch.randn(4096,1024))",
    },
    "block": {
        "MLP 64x512-2048-512": "nn.Sequential(nn.Linear(512,2048), nn.GELU(), nn.Linear(2048,512))"
        "(torch.randn(64,512))",
        "TinyLlama decoder layer, 128 tokens": TINY_LLAMA + "Layer()(torch.randn(1,128,2048))",
        "TinyLlama decoder layer, 1 token": TINY_LLAMA
        + "Layer()(torch.randn(1,1,2048), torch.randn(1,4,512,64), torch.randn(1,4,512,64))",
        "BERT encoder layer, 128 tokens": """
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer
BertLayer(BertConfig(attn_implementation="sdpa"))(torch.randn(1,128,768))
""",
        "ResNet block 64ch 56x56": """
from transformers.models.resnet.modeling_resnet import ResNetBasicLayer
ResNetBasicLayer(64, 64)(torch.randn(1,64,56,56))
""",
    },
    "model": {
        "Llama 4x512, 64 tokens": """
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=8000, hidden_size=512, intermediate_size=1408,
    num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4))
model(input_ids=torch.randint(0, 8000, (1,64)), use_cache=False).logits
""",
        "BERT 4x256, 128 tokens": """
from transformers import BertConfig, BertModel
model = BertModel(BertConfig(vocab_size=8000, hidden_size=256, num_hidden_layers=4,
    num_attention_heads=4, intermediate_size=1024))
model(input_ids=torch.randint(0, 8000, (1,128))).last_hidden_state
""",
        "ViT 4x192, 224x224": """
from transformers import ViTConfig, ViTModel
model = ViTModel(ViTConfig(hidden_size=192, num_hidden_layers=4, num_attention_heads=3,
    intermediate_size=768))
model(pixel_values=torch.randn(1,3,224,224)).last_hidden_state
""",
        "ResNet-18, 224x224": """
from transformers import ResNetConfig, ResNetModel
model = ResNetModel(ResNetConfig(hidden_sizes=[64,128,256,512], depths=[2,2,2,2],
    layer_type="basic"))
model(pixel_values=torch.randn(1,3,224,224)).last_hidden_state
""",
    },
}
WORKLOADS = {
    name: Workload(group, text.strip())
    for group, programs in GROUPS.items()
    for name, text in programs.items()
}
