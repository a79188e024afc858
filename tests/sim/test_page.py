"""The example of docs/SIMULATOR.md prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "SIMULATOR.md"


def test_the_example(update_golden: bool, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text()
    found = re.search(r"```python\n(.*?)```\n.*?```\n(.*?)```", text, re.DOTALL)
    assert found
    names: dict[str, Any] = {"np": np}
    exec(found[1], names)
    printed = capsys.readouterr().out
    if update_golden:
        PAGE.write_text(text.replace(found[2], printed))
    assert update_golden or printed == found[2]
