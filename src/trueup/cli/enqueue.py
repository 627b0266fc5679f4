"""`trueup jobs enqueue`: enqueues a job with arguments from the command line."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from trueup.cli import completing, output
from trueup.cli.errors import WrongUsage
from trueup.cli.options import argument, duration_option, option, switch, with_session
from trueup.cli.session import Session
from trueup.errors import InvalidArguments

if TYPE_CHECKING:
    from trueup.jobs.definition import Request

Document = Annotated[str | None, argument("JSON", 'Arguments: {"name": value, …} or [value, …].')]
Items = Annotated[
    list[str] | None, option("--arg -a", "NAME=VALUE", "An argument as text, or as JSON with :=. May be repeated.")
]


@with_session
def enqueue(
    session: Session,
    kind: Annotated[str, argument("KIND", "The job's name.", autocompletion=completing.kinds)],
    arguments: Document = None,
    arg: Items = None,
    delay: Annotated[str | None, duration_option("--delay", help="Delay before the job may run, such as 10m.")] = None,
    priority: Annotated[int | None, option("--priority", "N", "Higher priorities run sooner.")] = None,
    unique: Annotated[str | None, option("--unique", "KEY", "Only if no live job has this key.")] = None,
    queue: Annotated[
        str | None,
        option("--queue -q", "NAME", "Use this queue instead of the job's own.", autocompletion=completing.queues),
    ] = None,
    wait: Annotated[bool, switch("--wait", "Wait for the job and print its result.")] = False,
    timeout: Annotated[str | None, duration_option("--timeout", help="With --wait: maximum time to wait.")] = None,
) -> None:
    """Enqueue a job of your App."""
    positional, named = read_arguments(arguments, arg or [])
    if timeout is not None and not wait:
        raise WrongUsage("--timeout goes with --wait")
    app = session.app_with_jobs()
    request = app.registry[kind].using(delay=delay, priority=priority, unique=unique, queue=queue)
    session.run_on(app, lambda app: _enqueue(session, request, positional, named, wait, timeout))


async def _enqueue(
    session: Session,
    request: Request[..., Any],
    positional: list[Any],
    named: dict[str, Any],
    wait: bool,
    timeout: str | None,
) -> None:
    job = await request.enqueue(*positional, **named)
    if not session.json:
        say = output.note if wait else output.say
        say(f"enqueued job {job}" if job.created else f"job {job} has this unique key already; nothing was enqueued")
    if wait:
        result = await job.result(timeout)
        output.write_json({"id": job.id, "created": job.created, "result": result} if session.json else result)
    elif session.json:
        output.write_json({"id": job.id, "created": job.created})


def read_arguments(document: str | None, items: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments. Raises InvalidArguments when the text cannot be read."""
    if document is not None and "=" in document and not document.lstrip().startswith(("{", "[")):
        raise InvalidArguments(f"{document} is not JSON; write it with --arg: --arg {document}")
    given = _parse("the arguments", document) if document is not None else {}
    if not isinstance(given, dict | list):
        raise InvalidArguments(
            f'the arguments must be a JSON object or array, like {{"name": "value"}}, not {document}'
        )
    positional, named = (given, {}) if isinstance(given, list) else ([], dict(given))
    for item in items:
        name, value = _pair(item)
        if name in named:
            raise InvalidArguments(f"argument {name!r} was given twice")
        named[name] = value
    return positional, named


def _pair(item: str) -> tuple[str, Any]:
    """`name=text`, or `name:=json`."""
    name, found, value = item.partition("=")
    if not found or not name.removesuffix(":"):
        raise InvalidArguments(f"--arg {item}: write it like name=value, or name:=[1,2] for JSON")
    if name.endswith(":"):
        return name[:-1], _parse(f"--arg {name[:-1]}", value)
    return name, value


def _once_each(what: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArguments(f"{what}: {twice!r} is given twice in one object")
    return found


def _parse(what: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=partial(_once_each, what))
    except ValueError as error:
        raise InvalidArguments(f"{what}: not JSON: {error}") from None
    except RecursionError:
        raise InvalidArguments(f"{what}: JSON that is nested too deeply; arguments may be 200 levels deep") from None
