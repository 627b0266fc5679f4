"""`failed=`: what is written to a row after an attempt that is tried again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.work.rows.field import Field
from trueup import ConfigError, Failed, Retry, Stay, To
from trueup.events import RowConflict, RowRetried
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio


async def broken(row: Any) -> None:
    raise ValueError("boom")


async def test_it_is_written_with_each_failed_attempt_and_the_attempts_go_on_counting(
    field: Field, clock: ManualClock
) -> None:
    def failed(row: Any, failed: Failed) -> To:
        assert failed.again_at is not None
        wait = round((failed.again_at - clock.now()).total_seconds())
        return To("failed", n=failed.attempt, note=f"{failed.message} {wait}")

    await field.put()
    retry = Retry(max_attempts=3, first="10s", factor=3)
    field.fix(broken, "new", "failed", due_at="due_at", retry=retry, failed=failed, exhausted=To("dead"))
    for attempt, delay in ((1, 10), (2, 30)):
        assert (await field.sweep()).retry == 1
        thing, known = await field.thing(), await field.known()
        assert (thing["state"], thing["n"], thing["note"]) == ("failed", attempt, f"ValueError: boom {delay}")
        assert known is not None
        assert (known["state"], known["attempt"], len(known["errors"])) == ("resting", attempt, attempt)
        assert known["due_at"] == clock.now() + timedelta(seconds=delay)
        clock.advance(seconds=delay)
    assert (await field.sweep()).changed == 1
    assert (await field.thing())["state"] == "dead"
    assert await field.known() is None
    assert [event.attempt for event in field.events.of(RowRetried)] == [1, 2]


async def test_a_stale_row_stays_stale_by_failing(field: Field, clock: ManualClock) -> None:
    await field.put()
    before = (await field.thing())["changed_at"]
    field.fix(broken, retry=Retry(max_attempts=2, first="10s"), failed=Stay(note="failed"))
    assert (await field.sweep()).retry == 1
    thing = await field.thing()
    assert (thing["note"], thing["changed_at"]) == ("failed", before)
    clock.advance(seconds=10)
    assert (await field.sweep()).quarantined == 1


async def test_with_a_working_state_it_takes_the_place_of_going_back(field: Field) -> None:
    await field.put()
    field.fix(broken, "new", "failed", due_at="due_at", claimed_as="busy", failed=To("failed"))
    assert (await field.sweep()).retry == 1
    assert (await field.thing())["state"] == "failed"


async def test_somebody_elses_change_is_not_overwritten_by_it(field: Field) -> None:
    async def handler(row: Any) -> None:
        await field.do("update things set state = 'theirs', changed_at = now() where id = 1")
        raise ValueError

    await field.put()
    field.fix(handler, "new", "failed", due_at="due_at", failed=To("failed"))
    assert (await field.sweep()).conflict == 1
    assert (await field.thing())["state"] == "theirs"
    assert len(field.events.of(RowConflict)) == 1


@pytest.mark.parametrize(
    "failed", [lambda row, failed: To("elsewhere"), lambda row, failed: 1 / 0, Stay(n=5000), Stay(no=1)]
)
async def test_one_that_cannot_be_written_does_not_cost_the_retry(field: Field, failed: Any) -> None:
    await field.put()
    field.fix(broken, due_at="due_at", failed=failed)
    assert (await field.sweep()).retry == 1
    thing, known = await field.thing(), await field.known()
    assert (thing["state"], thing["n"]) == ("new", 0)
    assert known is not None
    assert (known["state"], known["attempt"]) == ("resting", 1)


async def test_a_state_that_would_never_be_tried_again_is_refused_at_once(field: Field) -> None:
    with pytest.raises(ConfigError, match="never be retried"):
        field.fix(broken, failed=To("elsewhere"))


async def test_one_that_raises_is_told_of_with_the_failure(field: Field) -> None:
    await field.put()
    field.fix(broken, due_at="due_at", failed=lambda row, failed: 1 / 0)
    await field.sweep()
    known = await field.known()
    assert known is not None
    assert "and failed= raised ZeroDivisionError" in known["errors"][0]["traceback"]
