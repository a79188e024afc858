"""The programs of `weft bench cuda`, as data: real sizes, f32 without TF32, bf16 where LLMs use it.

CUDA_WORKLOADS["matmul 4096 bf16"].text
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.cli.workloads import LLAMA_LAYER, TINY_LLAMA, Workload, attention


def bf16(*shape: int) -> str:
    return f"torch.randn({','.join(map(str, shape))}).bfloat16()"


def linear(tokens: int, inner: int, outer: int, of: str = "nn.Linear({}, {}, bias=False)") -> str:
    return of.format(inner, outer) + f".bfloat16()({bf16(tokens, inner)})"


BF16 = "torch.randn({}).bfloat16()"
SQUARES = (512, 1024, 2048, 4096)
PROJECTIONS = {"4096-4096": (4096, 4096), "4096-11008": (4096, 11008), "11008-4096": (11008, 4096)}
LLAMA_7B = LLAMA_LAYER.format(4096, 11008, 32, 32)
GROUPS = {
    "norm": {
        "RMSNorm 4096x4096": "nn.RMSNorm(4096)(torch.randn(4096,4096))",
        "RMSNorm 8192x4096 bf16": f"nn.RMSNorm(4096).bfloat16()({bf16(8192, 4096)})",
        "RMSNorm 32x2048": "nn.RMSNorm(2048)(torch.randn(32,2048))",
        "layer norm 16384x1024": "nn.LayerNorm(1024)(torch.randn(16384,1024))",
        "add + layer norm 8192x768": "nn.LayerNorm(768)"
        "(torch.randn(8192,768) + torch.randn(8192,768))",
        "group norm 16x64x112x112": "nn.GroupNorm(8, 64)(torch.randn(16,64,112,112))",
        "batch norm + ReLU 16x64x112x112": "nn.Sequential(nn.BatchNorm2d(64), nn.ReLU())"
        "(torch.randn(16,64,112,112))",
    },
    "softmax": {
        "softmax 128x512x512": "nn.Softmax(dim=-1)(torch.randn(128,512,512))",
        "softmax 262144x64": "torch.softmax(torch.randn(262144,64), 1)",
        "log-softmax 2048x32000": "F.log_softmax(torch.randn(2048,32000), 1)",
        "column softmax 4096x4096": "torch.softmax(torch.randn(4096,4096), 0)",
        "masked softmax 32x1024x1024 bf16": f"torch.softmax({bf16(32, 1024, 1024)} * 0.125 "
        "+ torch.full((1024,1024), -1e9).triu(1).bfloat16(), -1)",
    },
    "pointwise": {
        "call overhead 16x16": "torch.relu(torch.randn(16,16) + torch.randn(16,16))",
        "add 8192x4096": "torch.randn(8192,4096) + torch.randn(8192,4096)",
        "GELU 8192x4096": "F.gelu(torch.randn(8192,4096))",
        "gated chain 8192x2048": "(lambda a, b: torch.sigmoid(a) * b + torch.tanh(b) * 0.5)"
        "(torch.randn(8192,2048), torch.randn(8192,2048))",
        "SiLU gate 4096x11008 bf16": f"F.silu({bf16(4096, 11008)}) * {bf16(4096, 11008)}",
        "chain of 20000003": "(lambda a: torch.where(a > 0, a * a, torch.exp(a))"
        ".clamp(max=3.0) - 1)(torch.randn(20000003))",
    },
    "reduction": {
        "row sum 8192x4096": "torch.randn(8192,4096).sum(1)",
        "column sum 8192x4096": "torch.randn(8192,4096).sum(0)",
        "full sum 16384x4096": "torch.randn(16384,4096).sum()",
        "full max 8192x4096": "torch.randn(8192,4096).amax()",
        "argmax 8192x4096": "torch.randn(8192,4096).argmax(1)",
        "variance 8192x4096": "torch.randn(8192,4096).var(1)",
        "middle mean 256x128x1024": "torch.randn(256,128,1024).mean(1)",
    },
    "layout": {
        "transpose 4096x4096": "torch.randn(4096,4096).t().contiguous()",
        "transpose 8192x8192 bf16": f"{bf16(8192, 8192)}.t().contiguous()",
        "NCHW to NHWC 32x64x112x112": "torch.randn(32,64,112,112).permute(0,2,3,1).contiguous()",
        "split heads 32x1024x16x64": "torch.randn(32,1024,1024).view(32,1024,16,64).transpose(1,2)"
        ".contiguous()",
        "cat 3 of 8192x1024": "torch.cat([torch.randn(8192,1024), torch.randn(8192,1024), "
        "torch.randn(8192,1024)], 1)",
    },
    "matmul": {
        **{f"matmul {n}": f"torch.randn({n},{n}) @ torch.randn({n},{n})" for n in SQUARES},
        **{f"matmul {n} bf16": f"{bf16(n, n)} @ {bf16(n, n)}" for n in SQUARES},
        "matmul 1001x777x333": "torch.randn(1001,777) @ torch.randn(777,333)",
        "matmul A @ B.T 2048x1024x4096": "torch.randn(2048,1024) @ torch.randn(4096,1024).t()",
        "matmul 64x65536x64": "torch.randn(64,65536) @ torch.randn(65536,64)",
        "batched matmul 256x128x64x128": "torch.randn(256,128,64) @ torch.randn(256,64,128)",
        "MLP 2048x1024-4096 + GELU": "nn.Sequential(nn.Linear(1024,4096), nn.GELU())"
        "(torch.randn(2048,1024))",
    },
    "linear": {
        f"LLM projection {name}, {tokens} tokens bf16": linear(tokens, *sizes)
        for name, sizes in PROJECTIONS.items()
        for tokens in (32, 128, 512)
    }
    | {"LLM projection 4096-11008, 1 token bf16": linear(1, 4096, 11008)},
    "attention": {
        "attention 8x12x1024x64": attention("8,12,1024,64", "8,12,1024,64"),
        "causal attention 1x32x2048x128 bf16": attention(
            "1,32,2048,128", "1,32,2048,128", ", is_causal=True", BF16
        ),
        "attention, grouped 32/8x2048x128 bf16": attention(
            "1,32,2048,128", "1,8,2048,128", ", is_causal=True, enable_gqa=True", BF16
        ),
        "attention, one query 32x4096x128 bf16": attention(
            "1,32,1,128", "1,32,4096,128", like=BF16
        ),
    },
    "block": {
        f"TinyLlama decoder layer, {tokens} tokens bf16": TINY_LLAMA
        + f"Layer().bfloat16()({bf16(1, tokens, 2048)})"
        for tokens in (32, 128, 512)
    }
    | {
        "TinyLlama decoder layer, 512 tokens": TINY_LLAMA + "Layer()(torch.randn(1,512,2048))",
        "Llama-7B decoder layer, 512 tokens bf16": LLAMA_7B
        + f"Layer().bfloat16()({bf16(1, 512, 4096)})",
        "Llama-7B decoder layer, 1 token bf16": LLAMA_7B
        + f"Layer().bfloat16()({bf16(1, 1, 4096)}, "
        f"{bf16(1, 32, 512, 128)}, {bf16(1, 32, 512, 128)})",
    },
}


def in_turn() -> Iterator[tuple[str, Workload]]:
    """One of each group after the other: a bench that runs out of time has seen every group."""
    for place in range(max(map(len, GROUPS.values()))):
        for group, programs in GROUPS.items():
            for name, text in list(programs.items())[place : place + 1]:
                yield name, Workload(group, text.strip())


CUDA_WORKLOADS = dict(in_turn())
