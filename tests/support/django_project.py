"""The Django project that tests run in, set up by importing this, and its database.

Django's settings are made once per process, so every test that uses Django shares these.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from trueup import program
from trueup.work.calling import AROUND

POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "nowhere"}


if not settings.configured:
    settings.configure(
        DATABASES={
            "default": dict(POSTGRES),
            "other": dict(POSTGRES),
            "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
        STATIC_URL="static/",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            *(["django_tasks"] if find_spec("django.tasks") is None else []),
            "trueup.django",
            "tests.django.shop",
        ],
        LOGGING_CONFIG=None,
        ALLOWED_HOSTS=["testserver"],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        ROOT_URLCONF="tests.django.shop.urls",
        SECRET_KEY="for tests",
        TASKS={
            "default": {"BACKEND": "trueup.django.tasks.TrueupBackend", "QUEUES": ["default", "special"]},
            "patient": {"BACKEND": "trueup.django.tasks.TrueupBackend", "OPTIONS": {"MAX_ATTEMPTS": 2}},
            "any queue": {"BACKEND": "trueup.django.tasks.TrueupBackend", "QUEUES": []},
        },
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        USE_TZ=True,
    )
    django.setup()

# What the project puts around handlers, and how its commands are typed, is for its own tests and not for others of this process.
AROUND_HANDLERS = list(AROUND)
AROUND.clear()
PROGRAM, program.name = program.name, "trueup"


@contextmanager
def leads_to(url: str, alias: str = "default") -> Iterator[None]:
    """Within it the alias leads to this database, as if the project's settings said so."""
    from django.db import connections

    given = conninfo_to_dict(url)
    connection = connections[alias]
    before = dict(connection.settings_dict)
    connection.settings_dict.update(
        NAME=given["dbname"], USER=given["user"], HOST=given["host"], PORT=given.get("port", "")
    )
    try:
        yield
    finally:
        connections[alias].close()
        connection.settings_dict.clear()
        connection.settings_dict.update(before)
