"""Functions of JAX through weft: results, gradients, control flow, arrays, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import weft
from weft.core.errors import CaptureError, UnsupportedOpError

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from weft.jax.library import to_jax, to_torch, traced  # noqa: E402
from weft.jax.plan import planned  # noqa: E402


def array(*shape: int, seed: int = 0):
    return jnp.asarray(np.random.RandomState(seed).randn(*shape), jnp.float32)


def check(fn, *args, kernels: int | None = None, atol: float = 1e-5):
    """Compiled by weft and by XLA, it gives the same; by that many kernels."""
    expected = jax.jit(fn)(*args)
    f = weft.from_jax(fn)
    found = f(*args)
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    for got, want in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected)):  # noqa: B905
        assert isinstance(got, jax.Array) and (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=atol)
    assert len(f.programs) == 1 and not f.report.externs and not f.report.reasons
    if kernels is not None:
        assert len(f.report.kernels) == kernels
    return f


def loss(params, x):
    return (jax.nn.gelu(x @ params["w"] + params["b"]) ** 2).mean()


def test_gradients_and_vmap_are_in_the_jaxpr() -> None:
    params, x = {"w": array(8, 4), "b": array(4)}, array(16, 8)
    check(jax.value_and_grad(loss), params, x)
    check(jax.vmap(jax.grad(loss), in_axes=(None, 0)), params, x)
    check(lambda x: jax.nn.softmax(x) * jnp.arange(8), x, kernels=1)


def test_loops_of_known_length_are_unrolled() -> None:
    def rnn(w, xs, reverse=True):
        def step(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h * 2

        return jax.lax.scan(step, jnp.zeros(4), xs, reverse=reverse)

    check(rnn, array(4, 4), array(3, 4, seed=1))
    check(lambda x: jax.lax.fori_loop(0, 5, lambda i, y: y * 0.5 + i, x), array(8), kernels=1)

    long = array(100, 4, seed=1)  # in Python, the body compiled
    for reverse in (False, True):
        f = weft.from_jax(lambda w, xs, r=reverse: jnp.sin(rnn(w, xs, r)[1]))
        np.testing.assert_allclose(
            f(array(4, 4), long), jnp.sin(rnn(array(4, 4), long, reverse)[1]), rtol=1e-5, atol=1e-6
        )
        assert len(f.report.kernels) < 9 and "scan of 100 iterations" in f.report.reasons[0]

    def count(i, x):  # the counter of a while is known as well
        return jax.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * 2), (i, x))[1]

    jaxpr, _ = traced(lambda x: count(0, x), [array(3)], {})
    assert len([s for s in planned(jaxpr).steps if s.inputs]) == 4

    def many(x):
        return jax.lax.while_loop(lambda c: c[0] < 99, lambda c: (c[0] + 1, c[1] * 1.1), (0, x))

    np.testing.assert_allclose(weft.from_jax(many)(array(3))[1], many(array(3))[1], rtol=1e-5)


def test_a_loop_that_reads_its_condition_runs_in_python() -> None:
    def halve(x):
        return jax.lax.while_loop(lambda y: (y**2).sum() > 1, lambda y: y * 0.5, x)

    for scale in (1.0, 100.0):
        x = array(3, 5) * scale
        np.testing.assert_allclose(weft.from_jax(halve)(x), halve(x), rtol=1e-6)
        each = jax.vmap(halve)  # rows end at different times
        np.testing.assert_allclose(weft.from_jax(each)(x), each(x), rtol=1e-6)


def test_a_condition_selects_of_both_branches() -> None:
    def choose(x):
        return jax.lax.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, x)

    for sign in (1, -1):
        check(choose, abs(array(5)) * sign, kernels=1)
    third = lambda i, x: jax.lax.switch(i, [jnp.sin, jnp.cos, jnp.tan], x)  # noqa: E731
    for i in (-1, 1, 7):
        check(third, jnp.int32(i), array(5))


def test_a_branch_that_would_not_end_does_not_run() -> None:
    def halve(x):  # for ever of an infinity
        return jax.lax.while_loop(lambda y: y.sum() > 1, lambda y: y * 0.5, x)

    f = weft.from_jax(lambda x: jax.lax.cond(jnp.isfinite(x).all(), halve, lambda x: x, x))
    assert f(jnp.full(3, jnp.inf)).tolist() == [np.inf] * 3
    np.testing.assert_allclose(f(jnp.full(3, 8.0)), jnp.full(3, 0.25))


def test_what_a_function_holds_is_held_once() -> None:
    w = array(64, 64)
    jaxpr, _ = traced(lambda x: jnp.tanh(x @ w) @ w, [array(64)], {})
    assert len(planned(jaxpr).constants) == 1


def test_indices_go_where_jax_has_them_go() -> None:
    x, i = array(6, 3), jnp.array([0, 5, -1, 9])
    check(lambda x, i: (x[i], x.at[i].add(1.0), x.at[i].set(2.0), x.at[i].max(0.5)), x, i)
    check(lambda x, i: x.at[i].get(mode="clip"), x, i)
    check(lambda x, i: jax.lax.dynamic_slice(x, (i, 0), (4, 2)), x, jnp.int32(5))


def test_random_numbers_are_those_of_jax() -> None:
    key = jax.random.key(7)
    f = weft.from_jax(lambda key: jax.random.split(key)[1])
    assert (jax.random.key_data(f(key)) == jax.random.key_data(jax.random.split(key)[1])).all()
    bits = lambda k: jax.random.bits(k, (5,))  # noqa: E731
    old = jax.random.PRNGKey(3)
    jaxpr, _ = traced(bits, [old], {})
    (found,) = planned(jaxpr).run([to_torch(old)])
    assert found.tolist() == bits(old).tolist()


def test_integers_wrap_and_divide_as_in_xla() -> None:
    x = jnp.array([7, -7, -(2**31), 5, 1 << 30], jnp.int32)
    y = jnp.array([2, 2, -1, 0, 4], jnp.int32)
    check(lambda x, y: (jax.lax.div(x, y), jax.lax.rem(x, y), x * y, x + x), x, y)
    s = jnp.array([0, 1, 31, 32, -1], jnp.int32)
    shifts = jax.lax.shift_left, jax.lax.shift_right_logical, jax.lax.shift_right_arithmetic
    check(lambda x, s: [shift(x, s) for shift in shifts], x, s)
    f = jnp.array([1.9, -1.9, 3e9, -3e9, np.nan, np.inf], jnp.float32)
    check(lambda f: (f.astype(jnp.int32), f.astype(jnp.int8)), f)


def test_integers_without_a_sign() -> None:
    for dtype in (jnp.uint8, jnp.uint16, jnp.uint32):
        top = jnp.iinfo(dtype).max
        x, y = jnp.array([7, top, top, 5], dtype), jnp.array([2, top, 1, 0], dtype)
        i = jnp.array([0, 9])
        check(lambda x, y: (jax.lax.div(x, y), x + y, x * y, -x, x << 1, x > y), x, y)
        check(lambda x, i: (x[i], x.astype(jnp.float32), x.astype(jnp.int32)), x, i)
    narrow = jnp.array([1, 0xFFFF, 0x7F80, 3], jnp.uint16)
    for target in (jnp.int16, jnp.bfloat16):
        jaxpr, _ = traced(lambda x, t=target: jax.lax.bitcast_convert_type(x, t), [narrow], {})
        (found,) = planned(jaxpr).run([to_torch(narrow)])
        expected = jax.lax.bitcast_convert_type(narrow, target)
        wide = (np.asarray(v, np.float32) for v in (to_jax(found, target), expected))
        np.testing.assert_array_equal(*wide)
    out = weft.from_jax(lambda x: x + jnp.uint32(1))(torch.tensor([2**32 - 1]).to(torch.uint32))
    assert out.tolist() == [0]


def test_a_fold_keeps_the_order_of_its_elements() -> None:
    def compose(f, g):  # of two linear functions, which is associative and not commutative
        return f[0] * g[0], f[1] * g[0] + g[1]

    def fold(a, b):
        return jax.lax.reduce((a, b), (jnp.float32(1), jnp.float32(0)), compose, (1,))

    check(fold, array(2, 7), array(2, 7, seed=1))


def test_integers_are_folded_bit_by_bit() -> None:
    x, lax = jnp.array([5, -3, 12, 7], jnp.int32), jax.lax
    for fn, start in ((lax.bitwise_or, 64), (lax.bitwise_and, 7), (lax.bitwise_xor, 3)):
        first = jnp.int32(start)
        check(lambda x, fn=fn, s=first: lax.reduce(x, s, fn, (0,)), x)
        check(lambda x, fn=fn, s=first: lax.reduce_window(x, s, fn, (2,), (1,), "VALID"), x)
    pads = [(1, 1)]  # which a first value other than the neutral one is not folded into
    check(lambda x: lax.reduce_window(x, jnp.int32(3), lax.add, (2,), (1,), pads), x)


def test_convolutions_of_integers_wrap_around() -> None:
    x = jnp.array([[[2**30 + 1, 2**29 + 7, 123456789]]], jnp.int32)
    w = jnp.array([[[2**30 + 3, 2**28 + 5]]], jnp.int32)
    check(lambda x, w: jax.lax.conv(x, w, (1,), "VALID"), x, w)


def test_arrays_go_over_without_copies() -> None:
    x = array(64)
    assert to_torch(x).data_ptr() == x.unsafe_buffer_pointer()
    t = torch.randn(64)
    assert to_jax(t, jnp.float32).unsafe_buffer_pointer() == t.data_ptr()


def test_tensors_of_torch_give_tensors_and_gradients() -> None:
    f = weft.from_jax(lambda x, scale: jnp.sin(x).sum() * scale)
    x = torch.randn(7, requires_grad=True)
    out = f(x, 2.0)
    assert isinstance(out, torch.Tensor)
    (grad,) = torch.autograd.grad(out, x)
    torch.testing.assert_close(grad, 2 * x.detach().cos())

    def through_loops(x):  # torch's autograd follows them
        y = jax.lax.scan(lambda c, v: (c + v**2, c), jnp.float32(0), x)[0]
        return jax.lax.while_loop(lambda y: y > 1, lambda y: y * 0.5, y)

    long = torch.full((100,), 0.5, requires_grad=True)
    (grad,) = torch.autograd.grad(weft.from_jax(through_loops)(long), long)
    torch.testing.assert_close(grad, torch.full((100,), 1 / 32))
    f(torch.randn(7), 2.0), f(torch.randn(8), 2.0)
    assert len(f.programs) == 2  # a program for each signature


def test_a_constant_result_is_the_callers_own() -> None:
    table = np.arange(200.0, dtype=np.float32)
    f = weft.from_jax(lambda x: (x + 1, jnp.asarray(table), jnp.asarray(table).reshape(2, 100)))
    for result in f(torch.ones(2)):
        result.add_(100)
    assert f(torch.ones(2))[1][0] == 0 and f(torch.ones(2))[2][0, 0] == 0


def test_a_program_is_of_the_mode_it_was_traced_in() -> None:
    f = weft.from_jax(lambda x: x / 3)
    assert f(np.ones(2)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert f(np.ones(2)).dtype == jnp.float64


@jax.custom_vjp
def bounded(x):
    return x * 1.0


bounded.defvjp(lambda x: (bounded(x), x), lambda x, g: (jnp.clip(g, -0.1, 0.1) * x,))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: bounded(x) * 5,
        lambda x: jax.nn.relu(x - x[0]),  # 0 at 0, where torch's of a maximum is 1 / 2
        lambda x: jax.lax.cond(x.sum() > 99, jnp.sqrt, lambda y: y * 2, -x),
        lambda x: jax.lax.scan(lambda c, v: (bounded(c) + v, c), x[0], jnp.arange(100.0))[1],
        lambda x: (bounded(x) + 1j * x) * (2 - 1j),
    ],
)
def test_torch_gets_the_gradients_that_jax_defines(fn) -> None:
    x = torch.tensor([1.0, 2.0, -3.0], requires_grad=True)
    f = weft.from_jax(lambda x, i: {"y": fn(x), "i": i + 1})
    found = f(x, torch.tensor([1], dtype=torch.int32))
    assert found["i"].tolist() == [2] and not found["i"].requires_grad
    (grad,) = torch.autograd.grad(found["y"].abs().sum(), x, create_graph=True)
    expected = jax.grad(lambda x: jnp.abs(fn(x)).sum())(jnp.asarray(x.detach()))
    np.testing.assert_allclose(grad.detach(), expected, rtol=1e-5)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()
    with torch.no_grad():
        assert not f(x, torch.tensor([1], dtype=torch.int32))["y"].requires_grad


def test_an_error_says_which_primitive_and_where() -> None:
    def calls_python(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), jnp.float32), x)

    with pytest.raises(UnsupportedOpError, match="primitive pure_callback has no row") as caught:
        weft.from_jax(calls_python)(array(3))
    assert "test_from_jax.py" in str(caught.value.where)
    with pytest.raises(UnsupportedOpError, match="debug_print has effects"):
        weft.from_jax(lambda x: [jax.debug.print("hi"), x][1])(array(3))
    with pytest.raises(CaptureError, match="JAX cannot trace <lambda>: dot_general") as caught:
        weft.from_jax(lambda x, y: x @ y)(array(2, 3), array(2, 3))
    assert "test_from_jax.py" in str(caught.value.where)
    with pytest.raises(CaptureError, match="argument 0 is float64"):
        weft.from_jax(jnp.sin)(torch.randn(3, dtype=torch.float64))
    with pytest.raises(CaptureError, match="argument 0 is a str, and no array or number"):
        weft.from_jax(jnp.sin)("x")
    with pytest.raises(UnsupportedOpError, match="scatter by a function of one's own"):
        weft.from_jax(lambda x: x.at[jnp.array([0, 0])].apply(jnp.sin))(array(3))
    with pytest.raises(UnsupportedOpError, match="convolution over 4 axes"):
        conv = lambda x: jax.lax.conv(x, x, (1,) * 4, "SAME")  # noqa: E731
        weft.from_jax(conv)(array(1, 1, 2, 2, 2, 2))
