"""The product of attention's weights and values, where keys of weight zero may be left out.

out = torch.ops.weft.weighted(weights, values)    # f32[..., M, K], f32[..., K, N] -> f32[..., M, N]

In a matrix product 0 * inf is NaN, so that all keys would be read, however many a mask rules out.
"""

import torch

LIBRARY = torch.library.Library("weft", "FRAGMENT")
LIBRARY.define("weighted(Tensor weights, Tensor values) -> Tensor")
LIBRARY.impl("weighted", torch.matmul, "CompositeExplicitAutograd")
