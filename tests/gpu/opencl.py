"""The OpenCL device that tests run on: where there is none they are skipped, and say so."""

from __future__ import annotations

import pytest

from weft.core.errors import WeftError
from weft.runtime.opencl import Device, find_device


def opencl_device() -> Device:
    try:
        return find_device(None)
    except WeftError as e:
        pytest.skip(e.message)
