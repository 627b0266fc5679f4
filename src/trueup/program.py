"""How trueup's command line is called in this environment, so that commands in errors and advice can be copied."""

from __future__ import annotations

PLACE = " --app module:app"  # the placeholder in texts

name = "trueup"  # trueup.django changes it: without manage.py, no command knows the project's database
place = PLACE  # the option by which a command finds the App; empty where the environment or a file names it


def typed(command: str) -> str:
    """The text with its `trueup …` commands as they are typed in this environment."""
    if name != "trueup":
        return command.replace(PLACE, "").replace("trueup ", f"{name} ")
    return command.replace(PLACE, place)
