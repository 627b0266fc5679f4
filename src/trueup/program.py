"""How people call trueup's command line here, so that commands in errors and advice can be typed as they are."""

from __future__ import annotations

PLACE = " --app module:app"  # as texts have it

name = "trueup"  # trueup.django changes it: without manage.py, no command knows the project's database
place = PLACE  # what a command needs here to find the App; nothing where the environment or a file names it


def typed(command: str) -> str:
    """`trueup …` commands in a text, as they are typed here."""
    if name != "trueup":
        return command.replace(PLACE, "").replace("trueup ", f"{name} ")
    return command.replace(PLACE, place)
