"""The README's first example, against whatever database is configured: what a stranger does first, as one command.

python -m tools.quickstart          # or, for an installed wheel: python tools/quickstart.py
"""

from __future__ import annotations

import re
import runpy
import tempfile
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def first_example() -> str:
    """The README's first block of Python."""
    found = re.search(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, "the README has no example"
    return found[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "quickstart.py")
        script.write_text(first_example(), "utf-8")
        runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
