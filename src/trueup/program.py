"""How people call trueup's command line here, so that commands in errors and advice can be typed as they are."""

from __future__ import annotations

name = "trueup"  # trueup.django changes it: without manage.py, no command knows the project's database


def typed(command: str) -> str:
    """`trueup …` commands in a text, as they are typed here."""
    return command if name == "trueup" else command.replace(" --app module:app", "").replace("trueup ", f"{name} ")
