"""Fusion leaves apart what can run while a collective does, and joins the rest as ever."""

from __future__ import annotations

from weft.core.passes import PassLog
from weft.levels import lower
from weft.options import Options
from weft.text import parse_program

PROGRAM = """
program torch test
input x: f32[{n},{n}]
input w: f32[{n},{n}]
twice = aten.mul.Tensor(x, 2): f32[{n},{n}]
sum = _c10d_functional.all_reduce.default(twice, "sum", "0"): f32[{n},{n}]
whole = _c10d_functional.wait_tensor.default(sum): f32[{n},{n}]
mm = aten.mm.default(x, w): f32[{n},{n}]
own = aten.tanh.default(mm): f32[{n},{n}]
out = aten.add.Tensor(whole, own): f32[{n},{n}]
output out
"""


def steps(text: str) -> list[str]:
    made = lower(parse_program(text), Options(target="cpu:avx2"), PassLog())
    lines = made.text("loop").splitlines()
    kinds = {"kernel": "kernel", "all_reduce": "start", "wait_tensor": "wait"}
    headers = [line for line in lines if line.startswith(("kernel", "call"))]
    return [next(k for name, k in kinds.items() if name in line.split("(")[0]) for line in headers]


def test_a_product_runs_while_a_sum_is_on_its_way() -> None:
    """Not in the kernel before it, which reads x as well, nor in the one that reads both."""
    assert steps(PROGRAM.format(n=256)) == ["kernel", "start", "kernel", "wait", "kernel"]


def test_what_reads_the_sum_is_one_kernel() -> None:
    text = PROGRAM.format(n=256).replace("mm.default(x, w)", "mm.default(whole, w)")
    made = steps(text.replace("add.Tensor(whole, own)", "relu.default(own)"))
    assert made == ["kernel", "start", "wait", "kernel"]
