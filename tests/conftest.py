"""Settings and fixtures of the whole suite: the cache, golden files, hypothesis."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"

# Files of few tests that take long: first, or one process waits for another at the end.
LONG = """tile/test_program_choices frontend/test_models models/test_models agree/test_any_size
tune/test_tuner tune/test_program tensor/test_work frontend/test_sizes_of_images
frontend/test_pooling_gradients frontend/test_transposed_convolutions conformance/test_conformance
runtime/test_functions train/test_parallel train/test_checkpoint processes/test_processes
test_docs""".split()

# Read when weft and torch are first imported, so set before: a cache of the suite's own, and
# threads that sleep while they wait, because the suite runs several processes side by side.
os.environ["WEFT_CACHE"] = str(ROOT / "build" / "test-cache")
os.environ["WEFT_DEBUG"] = "1"  # what weft fails on is an error, and does not run in eager
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")  # 12 ms of each compile

gc.disable()  # until all tests are collected

import torch  # noqa: E402

gc.enable()

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


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Generator[None]:
    """What was imported stays out of the collector of cycles, which took a tenth of the time."""
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    long = {ROOT / "tests" / f"{name}.py" for name in LONG}
    items.sort(key=lambda item: item.path not in long)


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
