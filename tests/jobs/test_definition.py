from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from trueup import App, Context, Limit, Retry
from trueup.backoff import JOB_RETRY
from trueup.errors import ConfigError, InvalidArguments
from trueup.jobs.definition import Job
from trueup.jobs.job import Draft
from trueup.jobs.names import checked_name

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)


def send(to: str, times: int = 1) -> None:
    """Sends."""


def declared(**options: Any) -> Job[..., Any]:
    return App("postgresql://nowhere/x").job(**options)(send)


def drafted(using: dict[str, Any] | None = None, **options: Any) -> Draft:
    return declared(**options).using(**using or {}).call("a")


def test_a_job_without_options_is_named_after_its_function_and_retried_as_jobs_are() -> None:
    assert drafted() == Draft("send", "default", "default", '{"to":"a"}', JOB_RETRY.max_attempts)


def test_declared_options_hold_for_every_call() -> None:
    draft = drafted(
        name="mail.send", queue="mail", priority=5, retry=Retry(max_attempts=2), unique="u", unique_for="1h"
    )
    expected = Draft(
        "mail.send", "mail", "mail", '{"to":"a"}', 2, priority=5, unique_key="u", unique_for=timedelta(hours=1)
    )
    assert draft == expected


def test_a_call_can_choose_otherwise() -> None:
    chosen = {"queue": "bulk", "priority": -3, "max_attempts": 9, "delay": "5m", "unique": "v", "on_conflict": "raise"}
    draft = drafted(chosen, queue="mail", priority=5)
    assert (draft.queue, draft.lane, draft.priority, draft.max_attempts) == ("bulk", "bulk", -3, 9)
    assert (draft.delay, draft.unique_key, draft.on_conflict) == (timedelta(minutes=5), "v", "raise")


def test_a_unique_key_can_be_made_from_the_arguments_and_their_defaults() -> None:
    job = declared(unique=lambda to, times: f"{to}:{times}")
    assert job.call("a").unique_key == job.call("a", times=1).unique_key == "a:1"


def test_calling_a_job_calls_its_function() -> None:
    app = App("postgresql://nowhere/x")

    @app.job
    def double(value: int) -> int:
        """Doubles."""
        return 2 * value

    assert double(21) == 42
    assert (double.__name__, double.__doc__) == ("double", "Doubles.")


@pytest.mark.parametrize("name", ["a", "mail.send", "mail:send-2/x", "_", "9", "a" * 200])
def test_names_are_letters_digits_and_a_few_signs(name: str) -> None:
    assert checked_name("queue", name) == name


@pytest.mark.parametrize("name", ["", "@send", "-x", ".x", "a b", "ä", "a" * 201, "a\n", "a\x00", "a'", 3])
def test_other_names_are_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="queue "):
        checked_name("queue", name)


@pytest.mark.parametrize("options", [{"name": "a b"}, {"queue": "@x"}])
def test_a_job_with_a_bad_name_or_queue_is_refused_when_declared(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        declared(**options)


@pytest.mark.parametrize("priority", [-1000, 0, 1000])
def test_priorities_up_to_a_thousand_are_taken(priority: int) -> None:
    assert drafted(priority=priority).priority == priority
    assert drafted({"priority": priority}).priority == priority


@pytest.mark.parametrize("priority", [-1001, 1001, 2.5, "5", True])
def test_other_priorities_are_refused(priority: Any) -> None:
    for attempt in (lambda: drafted(priority=priority), lambda: drafted({"priority": priority})):
        with pytest.raises(ConfigError, match="a whole number from -1000 to 1000"):
            attempt()


def test_a_priority_of_zero_can_be_chosen_over_a_declared_one() -> None:
    assert drafted({"priority": 0}, priority=5).priority == 0


@pytest.mark.parametrize(
    ("using", "message"),
    [
        ({"run_at": MONDAY.replace(tzinfo=None)}, "has no time zone; give an aware datetime"),
        ({"run_at": MONDAY, "delay": "1s"}, "give delay= or run_at=, not both"),
        ({"delay": "-1s"}, "-1s"),
        ({"delay": "5"}, "has no unit"),
        ({"on_conflict": "ignore"}, "on_conflict='ignore': 'keep', 'replace' or 'raise'"),
        ({"unique_for": "1h"}, "unique_for= needs unique="),
        ({"unique": "u", "unique_for": "0s"}, "unique_for: must be longer than 0"),
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"queue": "a b"}, "queue 'a b'"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(using: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        drafted(using)
    assert message in str(refused.value)


TEMPLATES = [
    ("to", "str(to)"),
    (" to ", "str(to)"),
    ("mail:{to}", "f'mail:{to}'"),
    ("{ to }", "f'{to}'"),
    ("{to!r}", "f'{to!r}'"),
    ("{times:03}", "f'{times:03}'"),
    ("{to.id}", "f'{to.id}'"),
    ("{to[0]}:{times}", "f'{to[0]}:{times}'"),
    ("{{ to }}", "f'{to}'"),
    ("{to=}", "f'{to=}'"),
    ("%(to)s", "f'{to}'"),
    ("mail:$to", "f'mail:{to}'"),
    ("${to}", "f'{to}'"),
]


@pytest.mark.parametrize("where", ["declared", "using"])
@pytest.mark.parametrize(("unique", "meant"), TEMPLATES, ids=[unique for unique, _ in TEMPLATES])
def test_text_that_was_meant_as_a_template_is_refused_with_the_function_to_write(
    unique: str, meant: str, where: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        declared(unique=unique) if where == "declared" else declared().using(unique=unique)
    assert str(refused.value).endswith(f"give a function: unique=lambda to, times: {meant}")


@pytest.mark.parametrize(
    ("unique", "said"),
    [
        ("{}", "lambda to, times: f'{to}'"),
        ("{1}", "lambda to, times: f'{times}'"),
        ("mail:{adress}", "('adress': no such argument)"),
        ("{token}", "('token': no such argument)"),
    ],
)
def test_a_declared_key_has_no_braces_but_one_calls_key_may_have_them_from_its_data(unique: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        declared(unique=unique)
    assert declared().using(unique=unique).call("a").unique_key == unique


@pytest.mark.parametrize("unique", ["u", "total", "to-day", "mail to all", '{"to": 1}', "100%", "5 $", "a{", "}"])
def test_text_that_is_a_key_is_one(unique: str) -> None:
    assert declared(unique=unique).call("a").unique_key == unique


@pytest.mark.parametrize("key", ["", "x" * 501, "a\x00b", "\ud800", 7, None])
def test_a_unique_key_is_text_of_sensible_length(key: Any) -> None:
    make = declared(unique=lambda **_: key)
    if key is None:
        assert make.call("a").unique_key is None, "a function may say that this call is not unique"
        return
    with pytest.raises(InvalidArguments, match="unique= must give 1 to 500 characters of text"):
        make.call("a")


@pytest.mark.parametrize(
    "options", [{"timeout": "0s"}, {"timeout": "soon"}, {"rate": "fast"}, {"limit": 0}, {"fair_by": "tenant"}]
)
def test_declarations_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        declared(**options)


def test_a_job_with_controls_goes_through_a_lane_of_its_own_with_its_key() -> None:
    draft = drafted(limit=Limit(per_key=1), fair_by="to", queue="mail")
    assert (draft.queue, draft.lane, draft.key) == ("mail", "@send", "a")


def test_the_fair_key_of_an_argument_that_was_left_out_is_the_functions_default() -> None:
    job = declared(fair_by="times")
    assert job.call("a").key == job.call("a", times=1).key == "1"


def test_a_job_with_controls_cannot_change_its_queue_per_call() -> None:
    with pytest.raises(ConfigError, match="its queue cannot be chosen per call"):
        drafted({"queue": "bulk"}, limit=1)
    assert drafted({"queue": "mail"}, limit=1, queue="mail").lane == "@send"


def test_an_executor_takes_plain_functions_without_a_context() -> None:
    app = App("postgresql://nowhere/x")
    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(ConfigError, match="executor= takes a plain function without a Context"):

            @app.job(executor=executor)
            async def coroutine() -> None: ...

        with pytest.raises(ConfigError, match="executor= takes a plain function without a Context"):

            @app.job(executor=executor)
            def wants_context(ctx: Context) -> None: ...


def test_a_value_cannot_carry_a_transaction() -> None:
    with pytest.raises(ConfigError, match="pass tx= to the call that stores it"):
        declared().using(tx=object()).call("a")


def test_items_of_a_batch_are_tuples_or_dicts_and_a_bad_one_is_named_by_its_position() -> None:
    request = declared().using()
    template = request._bulk_template()
    drafts = request._drafts(template, [("a",), {"to": "b", "times": 2}, ["c", 3], declared().args("d", times=4)])
    assert [draft.args for draft in drafts] == [
        '{"to":"a"}',
        '{"to":"b","times":2}',
        '{"to":"c","times":3}',
        '{"to":"d","times":4}',
    ]
    for bad in ("text", b"bytes", 3, None, declared().call("a")):
        with pytest.raises(InvalidArguments, match="item 1: send: an item must be a tuple or a dict of arguments"):
            list(request._drafts(template, [("a",), bad]))  # type: ignore[list-item]
    for missing in ((), declared().args()):  # type: ignore[call-arg]
        with pytest.raises(InvalidArguments, match="item 2: send: to: is missing"):
            list(request._drafts(template, [("a",), ("b",), missing]))


@pytest.mark.parametrize("using", [{"unique": "u", "on_conflict": "replace"}, {"unique": "u", "unique_for": "1h"}])
def test_a_batch_cannot_replace_or_take_windows(using: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="enqueue_many takes on_conflict 'keep' or 'raise' and no unique_for="):
        declared().using(**using)._bulk_template()


def test_a_function_that_yields_is_no_job() -> None:
    app = App("postgresql://nowhere/x")

    def plain() -> Any:
        yield 1

    async def asynchronous() -> Any:
        yield 1

    for function in (plain, asynchronous):
        with pytest.raises(ConfigError, match="its function yields, so calling it runs nothing"):
            app.job(name="yields")(function)


class Sender:
    async def __call__(self, to: str) -> None: ...


@pytest.mark.parametrize("what", [Sender(), Sender, partial(send, "a")], ids=["object", "class", "partial"])
def test_what_can_be_called_and_is_no_function_is_no_job(what: Any) -> None:
    with pytest.raises(ConfigError, match=r"@app.job decorates a function, not .*; call it in a def of its own"):
        App("postgresql://nowhere/x").job(name="sender")(what)
