"""What is installed has everything that pages are made of."""

from __future__ import annotations

import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[3]


def test_the_wheel_has_templates_styles_and_the_script(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        packed = {Path(name).relative_to("trueup") for name in archive.namelist() if name.startswith("trueup/")}
    source = ROOT / "src" / "trueup"
    folder = source / "web" / "dashboard"
    wanted = {
        path.relative_to(source) for path in folder.rglob("*") if path.suffix in (".html", ".css", ".js", ".svg", ".py")
    }
    assert len(wanted) > 25
    assert wanted <= packed
