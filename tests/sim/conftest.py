"""The simulator needs g++; where there is none, its tests are left out, and the header says so."""

from __future__ import annotations

import shutil

collect_ignore_glob = [] if shutil.which("g++") else ["test_*.py"]


def pytest_report_header() -> list[str]:
    return ["no g++: tests/sim is left out"] if collect_ignore_glob else []
