"""Rows of linear algebra and Fourier transforms, by torch's own."""

from typing import Any

import torch

from weft.jax.rows import MISSING, Out, row

Tensor = torch.Tensor
TRANSFORMS = torch.fft.fftn, torch.fft.ifftn, torch.fft.rfftn, torch.fft.irfftn  # by FftType


def _of_a_part(p: dict[str, Any], ranks: list[int]) -> str:
    return "part of the values of a matrix" if p.get("subset_by_index") is not None else ""


MISSING.update(svd=_of_a_part, eigh=_of_a_part)
MISSING["qr"] = lambda p, ranks: "QR decomposition with pivots" if p.get("pivoting") else ""


@row("cholesky")
def cholesky(a: Tensor, **_: Any) -> Tensor:
    """The lower factor; NaN where there is none."""
    factor, info = torch.linalg.cholesky_ex(a)
    return torch.where((info == 0)[..., None, None], factor, torch.nan)


@row("qr")
def qr(a: Tensor, *, full_matrices: bool, **_: Any) -> Any:
    return tuple(torch.linalg.qr(a, "complete" if full_matrices else "reduced"))


@row("svd")
def svd(
    a: Tensor,
    *,
    full_matrices: bool,
    compute_uv: bool,
    **_: Any,
) -> Any:
    if not compute_uv:
        return (torch.linalg.svdvals(a),)
    u, s, v = torch.linalg.svd(a, full_matrices)
    return s, u, v


@row("eigh")
def eigh(a: Tensor, *, lower: bool, **_: Any) -> Any:
    """The vectors, then the values in ascending order."""
    values, vectors = torch.linalg.eigh(a, "L" if lower else "U")
    return vectors, values


@row("eig")
def eig(
    a: Tensor, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **_: Any
) -> Any:
    """The values, then left and right vectors of length 1: what is asked for."""
    values, right = torch.linalg.eig(a)
    found = [values]
    if compute_left_eigenvectors:
        left = torch.linalg.inv(right).mH
        found.append(left / torch.linalg.vector_norm(left, dim=-2, keepdim=True))
    return [*found, right] if compute_right_eigenvectors else found


@row("lu")
def lu(a: Tensor, **_: Any) -> Any:
    """Both factors in one matrix, the rows that were swapped, and the order of rows."""
    factors, pivots = torch.linalg.lu_factor(a)
    swaps = pivots - 1
    return factors, swaps, lu_pivots(swaps, permutation_size=a.shape[-2])


@row("lu_pivots_to_permutation")
def lu_pivots(pivots: Tensor, *, permutation_size: int, **_: Any) -> Tensor:
    order = torch.arange(permutation_size).expand(*pivots.shape[:-1], permutation_size)
    for i in range(pivots.shape[-1]):
        other = pivots[..., i : i + 1].long()
        here, there = order[..., i : i + 1], order.gather(-1, other)
        order = order.scatter(-1, other, here)
        order = torch.cat([order[..., :i], there, order[..., i + 1 :]], -1)
    return order


@row("triangular_solve")
def triangular_solve(
    a: Tensor,
    b: Tensor,
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
    **_: Any,
) -> Tensor:
    a = a.conj().resolve_conj() if conjugate_a else a
    a, upper = (a.mT, lower) if transpose_a else (a, not lower)
    options = {"upper": upper, "left": left_side, "unitriangular": unit_diagonal}
    return torch.linalg.solve_triangular(a, b, **options)


@row("tridiagonal_solve")
def tridiagonal_solve(dl: Tensor, d: Tensor, du: Tensor, b: Tensor, **_: Any) -> Tensor:
    """By the whole matrix: of the outer diagonals the first and the last element are none."""
    a = torch.diag_embed(d)
    a = a + torch.diag_embed(dl[..., 1:], -1) + torch.diag_embed(du[..., :-1], 1)
    return torch.linalg.solve(a, b)


@row("fft")
def fft(x: Tensor, *, fft_type: Any, fft_lengths: Any, out: Out, **_: Any) -> Tensor:
    if 0 in (*x.shape, *out.shape):
        return torch.zeros(out.shape, dtype=out.dtype)
    axes = tuple(range(-len(fft_lengths), 0))
    return TRANSFORMS[int(fft_type)](x, tuple(fft_lengths), axes)
