"""Hand-made nests of the loop and tile levels against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.nest.build import (
    a0,
    a1,
    a2,
    add,
    b0,
    buffer,
    c,
    fold,
    linear_relu,
    load,
    loop,
    masked,
    mul,
    program,
    reduce,
    rms_norm,
    softmax,
    sub,
    tiled_linear,
)
from tests.work import calls
from weft.core.arguments import Arguments
from weft.core.errors import VerifyError
from weft.core.node import make
from weft.core.types import TensorType, bf16, boolean, f16, f32, f64, i8, i64
from weft.interpret import nests as interpret
from weft.interpret.nests import run
from weft.loop.verify import verify
from weft.scalar.monoid import MAX, MONOIDS, WELFORD
from weft.scalar.nest import Buffer, Call, Fold, For, Load, Local, Program, Store, Update
from weft.scalar.ops import apply, cast
from weft.tile.verify import verify as verify_tile

rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def close(got: np.ndarray, wanted: np.ndarray, tolerance: float = 2e-6) -> None:
    assert got.shape == wanted.shape
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * scale)


@pytest.fixture(params=[1, 7, 1 << 18], ids="limit{}".format)
def any_limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many iterations run at once, the meaning is the same."""
    monkeypatch.setattr(interpret, "LIMIT", request.param)


@pytest.mark.usefixtures("any_limit")
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 1, 1), (2, 3, 0)])
def test_linear_relu(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    p = linear_relu(m, n, k)
    verify(p)
    x, b, w = normal(m, k), normal(k), normal(k, n)
    (y,) = run(p, [x, b, w])
    close(y, np.maximum((x + b) @ w, 0))


@pytest.mark.usefixtures("any_limit")
def test_rms_norm() -> None:
    p = rms_norm(3, 20)
    verify(p)
    x, w = normal(3, 20), normal(20)
    wide = x.astype(np.float64)
    close(run(p, [x, w])[0], wide / np.sqrt(np.mean(wide**2, 1, keepdims=True) + 1e-6) * w)


@pytest.mark.usefixtures("any_limit")
@pytest.mark.parametrize("online", [False, True])
def test_softmax(online: bool) -> None:
    p = softmax(4, 9, online)
    verify(p)
    x = normal(4, 9)
    x[0, 0], x[1, :4] = 80, -math.inf
    e = np.exp(x - x.max(1, keepdims=True))
    close(run(p, [x])[0], e / e.sum(1, keepdims=True))


@pytest.mark.usefixtures("any_limit")
def test_argmax_takes_the_first_and_prefers_nan() -> None:
    x, y = buffer("x", 3, 5), buffer("y", 3, dtype=i64)
    best = fold("best", MONOIDS["argmax"])
    body = reduce(a1, 0, 5, Update(best, (load(x, a0, a1), a1)), folds=(best,))
    p = program(loop(a0, 0, 3, body, Store(y, (a0,), best.accs[1])), (x,), (y,))
    verify(p)
    nan, low = math.nan, -math.inf
    given = np.array([[0, 5, 1, 5, 2], [low] * 5, [1, 2, nan, 9, nan]], "f")
    assert run(p, [given])[0].tolist() == [1, 0, 2]


@pytest.mark.usefixtures("any_limit")
def test_welford_over_two_axes() -> None:
    x, y = buffer("x", 5, 3, 4), buffer("y", 3)
    w = fold("w", WELFORD)
    inner = reduce(a2, 0, 4, Update(w, (load(x, a1, a0, a2),)))
    outer = reduce(a1, 0, 5, inner, folds=(w,))
    value = apply("divide", w.accs[2], w.accs[0])
    p = program(loop(a0, 0, 3, outer, Store(y, (a0,), value)), (x,), (y,))
    verify(p)
    given = normal(5, 3, 4) + 100
    close(run(p, [given])[0], given.astype(np.float64).var((0, 2)), 1e-4)


@pytest.mark.usefixtures("any_limit")
def test_scan_reads_the_running_fold() -> None:
    x, y = buffer("x", 2, 11), buffer("y", 2, 11)
    s = fold("s")
    store = Store(y, (a0, a1), s.running[0])
    scan = For(a1, c(0), c(11), (Update(s, (load(x, a0, a1),)), store), role="scan", folds=(s,))
    p = program(loop(a0, 0, 2, scan), (x,), (y,))
    verify(p)
    given = normal(2, 11)
    close(run(p, [given])[0], np.cumsum(given, 1))


def test_scan_over_folds_of_reductions() -> None:
    """Updated in an inner loop, and read after it: iterations of the scan run one by one."""
    x, y = buffer("x", 6, 4), buffer("y", 6)
    s = fold("s", MAX)
    inner = reduce(a1, 0, 4, Update(s, (load(x, a0, a1),)))
    body = (inner, Store(y, (a0,), s.running[0]))
    p = program(For(a0, c(0), c(6), body, role="scan", folds=(s,)), (x,), (y,))
    given = normal(6, 4)
    close(run(p, [given])[0], np.maximum.accumulate(given.max(1)))


def test_padding_reads_where_the_condition_holds() -> None:
    x, y = buffer("x", 4), buffer("y", 8)
    at = sub(a0, c(2))
    inside = apply("and", apply("ge", a0, c(2)), apply("lt", a0, c(6)))
    store = Store(y, (a0,), masked(x, (at,), inside, c(-1.0)))
    p = program(loop(a0, 0, 8, store), (x,), (y,))
    verify(p)
    assert run(p, [np.arange(4, dtype="f")])[0].tolist() == [-1, -1, 0, 1, 2, 3, -1, -1]


@pytest.mark.usefixtures("any_limit")
@pytest.mark.parametrize("shape", [(32, 48, 20), (19, 37, 5), (1, 3, 2)])
def test_tiles_with_tails_and_a_packed_panel(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    p = tiled_linear(m, n, k)
    verify_tile(p)
    x, w = normal(m, k), normal(k, n)
    close(run(p, [x, w])[0], x @ w)


def test_a_blocked_reduction_folds_its_tail() -> None:
    x, y = buffer("x", 37), buffer("y", 1)
    s = fold("s")
    inner = reduce(a0, b0, apply("minimum", add(b0, c(8)), c(37)), Update(s, (load(x, a0),)))
    outer = reduce(b0, 0, 37, inner, folds=(s,), step=8)
    p = program((outer, Store(y, (c(0),), s.accs[0])), (x,), (y,), level="tile")
    verify_tile(p)
    given = normal(37)
    close(run(p, [given])[0], given.sum(keepdims=True))


def test_a_counted_reduction_adds_a_constant_for_every_iteration() -> None:
    y, s = buffer("y", 3), fold("s")
    count = reduce(a1, 0, add(a0, c(1)), Update(s, (c(1.0),)), folds=(s,))
    p = program(loop(a0, 0, 3, count, Store(y, (a0,), s.accs[0])), (), (y,))
    assert run(p, [])[0].tolist() == [1, 2, 3]


def test_memory_carries_a_recurrence() -> None:
    """A reduce loop that reads what it wrote runs one iteration at a time."""
    y, t, s = buffer("y", 5), buffer("t", 6, space="local"), fold("s")
    step = Store(t, (add(a0, c(1)),), add(load(t, a0), c(2.0)))
    body = reduce(a0, 0, 5, step, Update(s, (load(t, a0),)), folds=(s,))
    copy = loop(a1, 0, 5, Store(y, (a1,), load(t, a1)))
    p = program((Local(t), Store(t, (c(0),), c(1.0)), body, copy), (), (y,))
    assert run(p, [])[0].tolist() == [1, 3, 5, 7, 9]


def test_a_load_sees_the_last_store() -> None:
    t, y, z = buffer("t", 1, space="local"), buffer("y", 1), buffer("z", 1)
    here = (c(0),)
    double = Store(t, here, mul(load(t, *here), c(2.0)))
    body = (Local(t), Store(t, here, c(3.0)), Store(y, here, load(t, *here)), double)
    p = program((*body, Store(z, here, load(t, *here))), (), (y, z))
    assert [v.tolist() for v in run(p, [])] == [[3], [6]]


def test_strided_buffers_and_their_flat_image() -> None:
    """A kernel that sees the buffer flat addresses the same memory as one that sees its strides."""
    x = Buffer("x", TensorType(f32, (2, 3), (1, 4)))
    y, span = buffer("y", 2, 3), Buffer("x", TensorType(f32, (10,)))
    given = normal(2, 3)
    p = program(loop(a0, 0, 2, loop(a1, 0, 3, Store(y, (a0, a1), load(x, a0, a1)))), (x,), (y,))
    assert (run(p, [given])[0] == given).all()
    flat_load = load(span, add(a0, mul(a1, c(4))))
    kernel = program(loop(a0, 0, 2, loop(a1, 0, 3, Store(y, (a0, a1), flat_load))), (span,), (y,))
    p = Program("loop", "k", (x,), (y,), kernel.steps)
    assert (run(p, [given])[0] == given).all()


def test_terms_keep_their_dtype_and_widen_computes_in_double() -> None:
    x, y = buffer("x", 2, dtype=f16), buffer("y", 2, dtype=f16)
    value = mul(cast(load(x, a0), f32), c(1 / 3, f32))
    p = program(loop(a0, 0, 2, Store(y, (a0,), cast(value, f16))), (x,), (y,))
    given = np.array([1, 2], np.float16)
    assert run(p, [given])[0].dtype == np.float16
    (wide,) = run(p, [given], widen=True)
    assert wide.dtype == np.float64
    assert wide.tolist() == [1 / 3, 2 / 3]
    z = buffer("z", 1, dtype=i8)
    p = program(Store(z, (c(0),), add(c(127, i8), c(1, i8))), (), (z,))
    assert run(p, [])[0].tolist() == [-128]


def test_library_calls_run_through_torch() -> None:
    x = Buffer("x", TensorType(bf16, (2, 3), (1, 2)))
    values, order = buffer("values", 2, 3, dtype=bf16), buffer("order", 2, 3, dtype=i64)
    text = '{"args": [{"tensor": 0}], "kwargs": {"dim": 1, "descending": true}}'
    call = Call("aten.sort.default", Arguments(text), (x,), (values, order))
    p = Program("loop", "sort", (x,), (values, order), (call,))
    given = np.array([[1, 3, 2], [6, 5, 4]]).astype(bf16.numpy)
    got, where = run(p, [given])
    assert got.astype("f").tolist() == [[3, 2, 1], [6, 5, 4]]
    assert where.tolist() == [[1, 2, 0], [0, 1, 2]]


def test_the_caller_gives_what_the_program_takes() -> None:
    p = rms_norm(3, 20)
    with pytest.raises(VerifyError, match=r"input x of k is f32\[3,20\], got float64\[3, 20\]"):
        run(p, [np.ones((3, 20)), normal(20)])
    with pytest.raises(VerifyError, match="k takes 2 inputs, got 1"):
        run(p, [normal(3, 20)])


def test_out_of_bounds_names_buffer_index_and_iteration() -> None:
    x, rows, y = buffer("x", 4, 2), buffer("rows", 3, dtype=i64), buffer("y", 3, 2)
    value = load(x, load(rows, a0), a1)
    p = program(loop(a0, 0, 3, loop(a1, 0, 2, Store(y, (a0, a1), value))), (x, rows), (y,))
    verify(p)
    x_, good = normal(4, 2), np.array([3, 0, 2])
    assert (run(p, [x_, good])[0] == x_[good]).all()
    sentence = (
        r"kernel k: load of x\[4, 0\] is out of bounds: axis 0 of f32\[4,2\] has 4 elements "
        r"where a0=1, a1=0\n  at model.py line 3"
    )
    with pytest.raises(VerifyError, match=sentence):
        run(p, [x_, np.array([0, 4, 9])])
    p = program(loop(a0, 0, 4, Store(buffer("y", 3), (a0,), c(1.0))), (), (buffer("y", 3),))
    with pytest.raises(VerifyError, match=r"store to y\[3\] is out of bounds.*where a0=3"):
        run(p, [])


def test_iterations_of_a_free_loop_store_to_different_elements_or_equal_values() -> None:
    x, y = buffer("x", 8), buffer("y", 4)
    half = apply("floordiv", a0, c(2))
    p = program(loop(a0, 0, 8, Store(y, (half,), load(x, a0))), (x,), (y,))
    with pytest.raises(VerifyError, match="two iterations store to one element of y"):
        run(p, [np.arange(8, dtype=np.float32)])
    (twice,) = run(p, [np.array([1, 1, 2, 2, 3, 3, np.nan, np.nan], np.float32)])
    np.testing.assert_array_equal(twice, [1, 2, 3, np.nan])


def test_free_loops_do_not_fold() -> None:
    x, s = buffer("x", 2, 3), fold("s")
    body = reduce(a0, 0, 2, loop(a1, 0, 3, Update(s, (load(x, a0, a1),))), folds=(s,))
    y = buffer("y", 1)
    p = program((body, Store(y, (c(0),), s.accs[0])), (x,), (y,))
    with pytest.raises(VerifyError, match="free loop a1 updates s"):
        run(p, [normal(2, 3)])


@pytest.mark.parametrize("name", sorted(MONOIDS))
def test_every_monoid_folds_as_its_reference(name: str) -> None:
    monoid = MONOIDS[name]
    dtype = f64
    given = rng.standard_normal((3, 13))
    if name in ("any", "all"):
        dtype = boolean

        given = given > 0.9 if name == "any" else given > -2
    x, s = buffer("x", 3, 13, dtype=dtype), fold("s", monoid, dtype)
    results = monoid.project(s.accs)
    y = buffer("y", 3, 1, dtype=results[0].type.dtype)
    values = (load(x, a0, a1), a1) if monoid.indexed else (load(x, a0, a1),)
    body = reduce(a1, 0, 13, Update(s, values), folds=(s,))
    p = program(loop(a0, 0, 3, body, Store(y, (a0, c(0)), results[0])), (x,), (y,))
    verify(p)
    np.testing.assert_allclose(run(p, [given])[0], monoid.reference(given, (1,)), rtol=1e-12)


def test_carriers_combine_as_partials() -> None:
    """Two halves of a reduction, folded apart, combine without being lifted again."""
    x, y = buffer("x", 2, 6), buffer("y", 1)
    part = Fold(("n", "mean", "m2"), WELFORD, (f32,) * 3)
    whole = fold("w", WELFORD)
    inner = reduce(a1, 0, 6, Update(part, (load(x, a0, a1),)), folds=(part,))
    outer = reduce(a0, 0, 2, inner, Update(whole, part.accs, partial=True), folds=(whole,))
    p = program((outer, Store(y, (c(0),), whole.accs[2])), (x,), (y,))
    verify(p)
    given = normal(2, 6)
    close(run(p, [given])[0], np.array([given.var() * 12]), 1e-5)


def test_speed() -> None:
    x, w = normal(256, 256), normal(256, 256)
    assert calls(lambda: run(linear_relu(256, 256, 256), [x, normal(256), w])) < 40_000


def test_a_masked_load_takes_its_other_value_from_a_term() -> None:
    x, y = buffer("x", 2), buffer("y", 4)
    value = make(Load(x, True), a0, apply("lt", a0, c(2)), cast(a0, f32))
    p = program(loop(a0, 0, 4, Store(y, (a0,), value)), (x,), (y,))
    assert run(p, [np.array([7, 8], "f")])[0].tolist() == [7, 8, 2, 3]
