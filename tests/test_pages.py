"""Old output, a block that fails and a change that does not fit are told (pages.py)."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from tests.pages import Apart, Here, current

PAGE = """
```python
# sums.py
def double(x):
    return 2 * x
```
```python
from sums import double
y = double(21)
print(y)
```
and later
```output
42
```
```sh
python3 -c 'import sums; print(sums.double(3))' | tail -1
```
```output
6
```
"""


def run(text: str, folder: Path) -> str:
    with (worker := Apart(folder)):
        return current(text, worker)


def test_blocks_of_a_page_run_in_its_folder(tmp_path: Path) -> None:
    assert run(PAGE, tmp_path) == PAGE
    assert run(PAGE.replace("42\n", "43\n"), tmp_path) == PAGE
    assert current(PAGE, Here()) == PAGE  # nothing of it is a `$` line


@pytest.mark.parametrize(
    "block",
    ["python\nprint(1)\n1 / 0\n", "python\nimport sys\nsys.exit(3)\n", "sh\nfalse | cat\n"],
)
def test_a_block_that_fails(block: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=re.escape(block.splitlines()[-1])):
        run(f"```{block}```\n", tmp_path)


def test_a_change_is_made_in_a_copy_of_weft(tmp_path: Path) -> None:
    change = """```diff
--- a/weft/text.py
+++ b/weft/text.py
@@
 from typing import Any

+from os import curdir
 from weft.core.errors import ParseError, VerifyError
```
"""
    look = """```python
from importlib.util import find_spec
print("curdir" in open(find_spec("weft").origin[:-11] + "text.py").read())
```
```output
{}
```
"""
    page = look.format(False) + change + look.format(True)
    assert run(page, tmp_path) == page
    with pytest.raises(AssertionError, match="weft has changed"):
        run(change.replace("Any", "Anything"), Path(tempfile.mkdtemp(dir=tmp_path)))
