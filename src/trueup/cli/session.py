"""The context of one command: settings, App and output format."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trueup import program
from trueup.cli import output
from trueup.errors import ConfigError

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.config import Settings

T = TypeVar("T")


def note_new_server(settings: Settings) -> None:
    """Say on standard error that a command is about to create an embedded PostgreSQL: it may be the wrong directory."""
    if settings.database_url is None and not Path(settings.data_dir).exists():
        output.note(
            f"note: no database is configured; creating an embedded PostgreSQL in {settings.data_dir} "
            "(set TRUEUP_DATABASE_URL to use your own)"
        )


@dataclass(frozen=True)
class Session:
    """The options every command takes, as given. Files, modules and connections are loaded on first use."""

    app_place: str | None = None
    database_url: str | None = None
    schema: str | None = None
    json: bool = False

    def settings(self) -> Settings:
        """The settings in force: those of the App if there is one, overridden by the command line."""
        return self.app().settings

    def app(self) -> App:
        """The App that is configured, or else one without jobs: enough for everything that needs no job's definition."""
        from trueup.app import App
        from trueup.cli.loading import load_app
        from trueup.config import load_settings

        given = {"app": self.app_place, "database_url": self.database_url, "schema": self.schema}
        settings = load_settings(overrides=given, options=True)
        program.place = program.PLACE if settings.app is None else f" --app {self.app_place}" if self.app_place else ""
        if settings.app is None:
            return App(self.database_url, schema=self.schema)
        app = load_app(settings.app)
        self._override(app, settings)
        return app

    def app_with_jobs(self) -> App:
        """The configured App. Raises ConfigError when there is none or it declares nothing."""
        app = self.app()
        if app.declares_work:
            return app
        if app.settings.app is None and self.app_place is None:
            raise ConfigError("this command needs your App: give --app module:attribute, or set TRUEUP_APP")
        raise ConfigError(
            f"{self.app_place or app.settings.app} declares no job, reconciler or scan; decorate a function with @app.job"
        )

    def answer(self, document: object, text: str) -> None:
        """Write the document if JSON is asked for, else the text."""
        if self.json:
            output.write_json(document)
        else:
            output.say(text)

    def run(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Do the work on the App, connected, and close it."""
        return self.run_on(self.app(), work)

    def run_on(self, app: App, work: Callable[[App], Awaitable[T]]) -> T:
        import asyncio

        from trueup.operate.acting import acting

        async def connected() -> T:
            try:
                note_new_server(app.settings)
                async with (await app.open()).explained():
                    return await work(app)
            finally:
                await app.close()

        with acting(None, "cli", together=True):
            return asyncio.run(connected())

    def _override(self, app: App, settings: Settings) -> None:
        given = {
            name: getattr(settings, name) for name in ("database_url", "schema") if getattr(self, name) is not None
        }
        sources = {**app.settings.sources, **{name: settings.sources[name] for name in given}}
        app.settings = dataclasses.replace(app.settings, **given, sources=sources)
