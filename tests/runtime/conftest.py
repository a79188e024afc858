"""A toolchain with a cache of its own, shared by the runtime's tests."""

from __future__ import annotations

import pytest

from weft.runtime.toolchain import Toolchain, open_toolchain


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return open_toolchain(tmp_path_factory.mktemp("cache"))
