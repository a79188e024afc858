"""Special functions: rows of `ops.py`, whose C is runtime/gpu/weft_special.h, by torch's names.

In NumPy each is what torch.special calls so, in f64.
"""

from typing import Any

import numpy as np
import torch

from weft.scalar.ops import FLOAT, Evaluate, function


def _of_torch(name: str) -> Evaluate:
    """What torch.special calls so, in f64."""

    def evaluate(*args: Any) -> Any:
        wide = [torch.from_numpy(np.array(x, np.float64)) for x in np.broadcast_arrays(*args)]
        found = getattr(torch.special, name)(*wide)
        return found.numpy().astype(np.result_type(*args))

    return evaluate


SPECIAL = (  # by torch's names, of one argument and of two
    """modified_bessel_i0 modified_bessel_i1 i0e i1e modified_bessel_k0 modified_bessel_k1 bessel_j0
    scaled_modified_bessel_k0 scaled_modified_bessel_k1 bessel_j1 bessel_y0 bessel_y1 airy_ai erfcx
    ndtri erfinv digamma""".split(),
    """zeta gammainc gammaincc hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l
    legendre_polynomial_p chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v
    chebyshev_polynomial_w shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
    shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w""".split(),
)
SHORT = "erfinv", "i0e", "i1e"  # those of f32 by polynomials in f32
for arity, names in enumerate(SPECIAL, 1):
    for name in names:
        cost = 40 if name in SHORT else 150
        function(name, arity, _of_torch(name), domain=FLOAT, cost=cost)
