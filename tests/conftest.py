"""Settings and fixtures of the whole suite: the cache, golden files, hypothesis."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"

# Read when weft and torch are first imported, so set before: a cache of the suite's own, and
# threads that sleep while they wait, because the suite runs several processes side by side.
os.environ["WEFT_CACHE"] = str(ROOT / "build" / "test-cache")
os.environ["WEFT_DEBUG"] = "1"  # what weft fails on is an error, and does not run in eager
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")  # 12 ms of each compile

gc.disable()  # until all tests are collected

import torch  # noqa: E402

gc.enable()

from tests.part import longest_first, noted, split  # noqa: E402

# torch's own cases would freeze the flags of backends for every test that runs after their import.
torch.backends.disable_global_flags = lambda: None  # type: ignore[attr-defined]

try:
    from hypothesis import settings
except ImportError:  # a machine without a registry runs the rest of the suite
    pass
else:
    settings.register_profile("weft", deadline=None, print_blob=True, derandomize=True)
    settings.load_profile("weft")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")
    parser.addoption("--part", action="store_true", help="of long tests a fixed part of the cases")


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Generator[None]:
    """What was imported stays out of the collector of cycles, which took a tenth of the time."""
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds = noted()
    longest_first(items, seconds)
    if config.getoption("--part"):
        items[:], left = split(items, seconds)
        config.hook.pytest_deselected(items=left)


@pytest.fixture(autouse=True)
def torch_modes() -> Iterator[None]:
    """A test that leaves one of torch's modes changed fails itself, not those after it."""
    before = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()
    yield
    after = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()
    torch.set_grad_enabled(before[0])
    torch.set_default_dtype(before[1])
    torch.set_num_threads(before[2])
    assert after == before, "the test leaves gradients, the default dtype or threads changed"


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[str, str], None]:
    """golden("loop/rmsnorm.txt", text) compares with tests/golden; --update-golden rewrites."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update_golden:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} does not exist: run pytest --update-golden"
        assert text == path.read_text()

    return check
