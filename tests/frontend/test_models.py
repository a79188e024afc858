"""Small transformers models and a Llama decoder layer, through both entries, with capture times."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.captures import capture_call
from tests.frontend.frontend_programs import native
from weft.calling import compiled
from weft.frontend.autograd import graph_backend
from weft.frontend.torch_level import Aten

transformers = pytest.importorskip("transformers")

TINY = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama(**more: Any) -> Any:
    config = transformers.LlamaConfig(
        **TINY, num_key_value_heads=2, intermediate_size=32, max_position_embeddings=64, **more
    )
    return transformers.LlamaForCausalLM(config)


def gpt2() -> Any:
    config = transformers.GPT2Config(vocab_size=50, n_positions=64, n_embd=16, n_layer=2, n_head=4)
    return transformers.GPT2LMHeadModel(config)


def bert() -> Any:
    return transformers.BertModel(transformers.BertConfig(**TINY, intermediate_size=32))


@pytest.mark.parametrize("entry", ["direct", "dynamo"])
@pytest.mark.parametrize("make", [llama, gpt2, bert], ids=lambda m: m.__name__)
def test_model_as_eager(make, entry):
    """Decoders with a cache; without one: tests/models."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = make().eval()
    if entry == "direct":
        f = compiled(model, native)
    else:
        f = torch.compile(model, backend=graph_backend(native.session()))
    ids = torch.randint(0, 50, (2, 7))
    more = {} if make is bert else {"use_cache": True}
    with torch.no_grad():
        for _ in range(2):
            want, got = model(input_ids=ids, **more), f(input_ids=ids, **more)
            assert type(got) is type(want) and got.keys() == want.keys()
            torch.testing.assert_close(got[0], want[0])
        if make is not bert:
            step = {"input_ids": ids[:, :1]}
            want2 = model(**step, past_key_values=copy.deepcopy(want.past_key_values))
            got2 = f(**step, past_key_values=got.past_key_values)
            torch.testing.assert_close(got2[0], want2[0])


def test_llama_trains():
    torch.manual_seed(0)
    model = llama()
    reference = copy.deepcopy(model)
    f = compiled(model, native)
    ids = torch.randint(0, 50, (2, 7))
    for m in (f, reference):
        m(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def test_static_cache_decodes():
    torch.manual_seed(0)
    model = llama().eval()
    ids = torch.randint(0, 50, (1, 5))
    f = compiled(model, native)
    outs = []
    for call in (model, f):
        cache = transformers.StaticCache(config=model.config, max_cache_len=16)
        with torch.no_grad():
            for at in range(3):
                out = call(
                    input_ids=ids[:, at : at + 1],
                    past_key_values=cache,
                    position_ids=torch.tensor([[at]]),
                )
        outs.append(out.logits)
    torch.testing.assert_close(*outs)


def test_a_decoder_layer_keeps_its_products_and_attention():
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    config = transformers.LlamaConfig(
        hidden_size=256, num_attention_heads=8, num_key_value_heads=2, intermediate_size=512
    )
    config._attn_implementation = "sdpa"
    layer = LlamaDecoderLayer(config, 0).eval()
    x, cos, sin = torch.randn(1, 16, 256), torch.randn(1, 16, 32), torch.randn(1, 16, 32)
    with torch.no_grad():
        captured = capture_call(layer, (x,), {"position_embeddings": (cos, sin)})
    ops = [n.op.target for n in captured.graph.nodes() if isinstance(n.op, Aten)]
    assert ops.count("aten.linear.default") == 7
    assert ops.count("aten.scaled_dot_product_attention.default") == 1
