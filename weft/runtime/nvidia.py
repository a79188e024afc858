"""NVIDIA's Python bindings, the extra weft[cuda]: the one file that imports them.

nvrtc().nvrtcVersion()          # the compiler: needs no driver
driver().cuDeviceGet(0)         # the driver, initialised
"""

from functools import cache
from typing import Any, cast

from weft.core.errors import NoCompiler, WeftError


@cache
def nvrtc() -> Any:
    """The compiler, with a library behind it that loads."""
    try:
        from cuda.bindings import nvrtc as bindings  # pyright: ignore[reportAttributeAccessIssue]

        bindings.nvrtcVersion()
    except (ImportError, RuntimeError) as e:
        raise NoCompiler("compiling CUDA needs NVRTC: pip install 'weft[cuda]'") from e
    return cast(Any, bindings)


@cache
def driver() -> Any:
    """The driver, initialised."""
    try:
        from cuda.bindings import driver as bindings  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError as e:
        raise WeftError("running on a GPU needs NVIDIA's bindings: pip install 'weft[cuda]'") from e
    try:
        (status,) = bindings.cuInit(0)
    except RuntimeError as e:
        raise WeftError("there is no NVIDIA driver here: libcuda.so.1 does not load") from e
    if status.value != 0:
        raise WeftError(f"the NVIDIA driver does not start: {status.name}")
    return cast(Any, bindings)
