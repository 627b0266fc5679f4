from __future__ import annotations

from pathlib import Path

import pytest

from bench import plots


@pytest.mark.parametrize(("path", "content"), list(plots.drawn()), ids=list(plots.PLOTS))
def test_a_plot_shows_the_latest_results(path: Path, content: str) -> None:
    assert path.read_text() == content, "run: python -m bench.plots"


def test_what_takes_too_long_stands_apart_and_what_is_off_the_scale_has_its_number() -> None:
    drawn = plots.growth({"rows": {"claim": 1.0, "sweep": 60.0}})
    assert drawn.count("<circle") == 2
    assert drawn.count("#c2410c") == 1
    assert "sweep 60×" in drawn
