"""Fourier transforms, and random numbers, which are torch's: `seed` attributes are not read.

DFT(x, None, -2, onesided=1)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.onnx.table import op
from weft.onnx.types import number, stored


def signal_of(x: Tensor) -> Tensor:
    """The last axis holds a real part, or a real and an imaginary one."""
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    return x.squeeze(-1) if x.shape[-1] == 1 else torch.view_as_complex(x.contiguous())


@op("DFT", since=20, wants=(1, 2))
def dft(
    x: Tensor, length: Any = None, axis: Any = -2, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    length, axis = number(length), number(axis) % x.dim()
    given = signal_of(x)
    if not inverse:
        found = torch.fft.fft(given, length, axis)
        found = found.narrow(axis, 0, found.shape[axis] // 2 + 1) if onesided else found
    elif onesided:
        return torch.fft.irfft(given, length, axis).unsqueeze(-1).to(x.dtype)
    else:
        found = torch.fft.ifft(given, length, axis)
    return torch.view_as_real(found.resolve_conj()).to(x.dtype)


@op("DFT", since=17, wants=(1,))
def dft_17(
    x: Tensor, length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return dft(x, length, axis, inverse=inverse, onesided=onesided)


@op("STFT", wants=(1, 3))
def stft(
    x: Tensor, step: Any, window: Tensor | None = None, length: Any = None, *, onesided: int = 1
) -> Tensor:
    """[batch, frames, frequencies, 2]: the transform of each frame, weighted by the window."""
    step, length = number(step), number(length)
    size = length or (window.shape[0] if window is not None else x.shape[1])
    frames = signal_of(x).unfold(1, size, step)
    frames = frames if window is None else frames * window
    found = torch.fft.fft(frames, size, -1)
    found = found[..., : size // 2 + 1] if onesided else found
    return torch.view_as_real(found).to(x.dtype)


@op("MelWeightMatrix", wants=(0, 1, 2, 3, 4))
def mel_weights(
    bins: Any, length: Any, rate: Any, low: Any, high: Any, *, output_datatype: int = 1
) -> Tensor:
    """Triangles over frequencies that are evenly spaced on the mel scale, in whole bins."""
    bins, length, rate, low, high = map(number, (bins, length, rate, low, high))
    mels = [2595 * math.log10(1 + edge / 700) for edge in (low, high)]
    step = (mels[1] - mels[0]) / (bins + 2)
    hertz = [700 * (10 ** ((mels[0] + i * step) / 2595) - 1) for i in range(bins + 2)]
    edges = [int((length + 1) * f // rate) for f in hertz]
    found = np.zeros((length // 2 + 1, bins))
    for i, (left, middle, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        found[middle, i] = 1 if left == middle else 0
        for j in range(left, middle + 1 if middle > left else left):
            found[j, i] = (j - left) / (middle - left)
        for j in range(middle, right):
            found[j, i] = (right - j) / (right - middle)
    return torch.from_numpy(found).to(stored(output_datatype))


def window(name: str, *weights: float) -> None:
    """A sum of cosines over a period of `size` elements, or over one less if it is symmetric."""

    @op(name, wants=(0,))
    def row(size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
        size = number(size)
        angle = torch.arange(size, dtype=torch.float64) * (
            2 * math.pi / max(size - (not periodic), 1)
        )
        parts: list[Tensor] = [w * (-1) ** k * torch.cos(k * angle) for k, w in enumerate(weights)]
        return sum(parts[1:], parts[0]).to(stored(output_datatype))


window("HannWindow", 0.5, 0.5)
window("HammingWindow", 25 / 46, 21 / 46)
window("BlackmanWindow", 0.42, 0.5, 0.08)


# Random numbers


@op("RandomUniform")
def uniform(
    *, shape: Any, low: float = 0.0, high: float = 1.0, dtype: int = 1, seed: float | None = None
) -> Tensor:
    return torch.rand(shape, dtype=stored(dtype)) * (high - low) + low


@op("RandomNormal")
def normal(
    *, shape: Any, mean: float = 0.0, scale: float = 1.0, dtype: int = 1, seed: float | None = None
) -> Tensor:
    return torch.randn(shape, dtype=stored(dtype)) * scale + mean


@op("RandomUniformLike")
def uniform_like(
    x: Tensor, *, low: float = 0.0, high: float = 1.0, dtype: int = 0, seed: float | None = None
) -> Tensor:
    return torch.rand_like(x, dtype=stored(dtype) if dtype else x.dtype) * (high - low) + low


@op("RandomNormalLike")
def normal_like(
    x: Tensor, *, mean: float = 0.0, scale: float = 1.0, dtype: int = 0, seed: float | None = None
) -> Tensor:
    return torch.randn_like(x, dtype=stored(dtype) if dtype else x.dtype) * scale + mean


@op("Bernoulli")
def bernoulli(x: Tensor, *, dtype: int = 0, seed: float | None = None) -> Tensor:
    return torch.bernoulli(x).to(stored(dtype) if dtype else x.dtype)


@op("Multinomial")
def multinomial(
    x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    """Classes by their logarithms of probabilities."""
    drawn = torch.multinomial(torch.softmax(x, -1), sample_size, replacement=True)
    return drawn.to(stored(dtype))
