from __future__ import annotations

import pytest

from trueup import App
from trueup.errors import ConfigError, UnknownKind


def test_two_functions_cannot_have_the_same_name() -> None:
    app = App("postgresql://nowhere/x")

    @app.job(name="send")
    async def first() -> None: ...

    with pytest.raises(ConfigError, match=r"job 'send' is declared twice \(also by .*first\); give one of them name="):

        @app.job(name="send")
        async def second() -> None: ...


def test_declaring_the_same_function_again_replaces_its_options() -> None:
    app = App("postgresql://nowhere/x")

    async def send() -> None: ...

    app.job(queue="mail")(send)
    app.job(queue="bulk")(send)
    assert len(app.registry) == 1
    assert app.registry.queues() == ["bulk"]


def test_an_unknown_name_lists_the_known_ones() -> None:
    app = App("postgresql://nowhere/x")
    with pytest.raises(UnknownKind, match="no job is called 'send'; registered: none"):
        app.registry["send"]

    @app.job
    async def fetch() -> None: ...

    with pytest.raises(UnknownKind, match="registered: fetch"):
        app.registry["send"]
    assert app.registry.get("send") is None
    assert list(app.registry) == [fetch]
