from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from trueup import ConfigError, Delete, Retry, To
from trueup.durations import Rate
from trueup.reconcile.handler import RowHandler
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.selection import Selection
from trueup.reconcile.table import TableSpec

THINGS = TableSpec.of("things", "id", "state", "changed_at")


def made(handler: Any = lambda row: None, table: TableSpec = THINGS, **options: Any) -> Reconciler:
    given = {name: options.pop(name) for name in ("claimed_as", "stale_for", "due_at") if name in options}
    selection = Selection.of("reconciler 'fix'", table, ["new"], **given)
    return Reconciler.of("fix", selection, RowHandler(handler, "reconciler 'fix'"), options)  # type: ignore[arg-type]


async def with_tx(row: Any, *, tx: Any) -> None: ...


def test_what_is_not_said_has_a_default() -> None:
    plain = made()
    assert (plain.every, plain.batch, plain.concurrency) == (timedelta(minutes=1), 100, 10)
    assert (plain.claim, plain.mode, plain.lease_for) == ("lease", "live", timedelta(seconds=30))
    assert plain.revisit == plain.every
    assert plain.retry == Retry()
    assert plain.rate is None
    assert plain.lane is None
    assert plain.pause_after is None
    assert not plain.run_at_start


def test_the_slower_of_rate_and_canary_holds_and_canary_is_said_to_go() -> None:
    with pytest.deprecated_call(match="canary= is deprecated"):
        assert made(rate="50/s", canary="1/m").rate == Rate.parse("1/m")
    with pytest.deprecated_call():
        assert made(rate="1/m", canary="50/s").rate == Rate.parse("1/m")
    assert made(rate="5/s").lane == "rows:fix"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": "0s"}, "every=: must be longer than 0"),
        ({"every": "soon"}, "every="),
        ({"batch": 0}, "batch=0: a whole number from 1 to 10,000"),
        ({"batch": True}, "batch=True"),
        ({"concurrency": 1_001}, "from 1 to 1,000"),
        ({"claim": "lock"}, "claim='lock': 'lease' or 'row_lock' is needed"),
        ({"mode": "dry"}, "mode='dry': 'live' or 'shadow' is needed"),
        ({"lease_for": "999ms"}, "the minimum is one second"),
        ({"exhausted": "dead"}, "exhausted='dead'"),
        ({"deadline": "0s"}, "deadline="),
        ({"timeout": "0s"}, "timeout="),
        ({"pause_after": 0}, "pause_after=0"),
        ({"pause_for": "0s"}, "pause_for="),
        ({"rate": "fast"}, "fast"),
        ({"claim": "row_lock", "claimed_as": "working"}, "are for claim='lease'"),
        ({"handler": with_tx}, "only claim='row_lock' gives"),
        (
            {"claim": "row_lock", "table": TableSpec.of("things", "id", "state", lease_columns=("owner", "until"))},
            "are for claim='lease'",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        made(**options)
    assert said in str(raised.value)


def test_tx_is_given_with_a_lock_and_as_if_in_shadow() -> None:
    assert made(with_tx, claim="row_lock").handler.tx == "tx"
    assert made(with_tx, mode="shadow").handler.tx == "tx"


@pytest.mark.parametrize("exhausted", [To("dead"), Delete(), lambda row, error: To("dead"), None])
def test_exhausted_is_an_outcome_or_a_function(exhausted: Any) -> None:
    assert made(exhausted=exhausted).exhausted is exhausted


def test_people_are_shown_what_was_declared() -> None:
    shown = made(stale_for="10m", rate="5/s", pause_after=9).declared()
    assert shown["rows"] == "things: new, unchanged for 10m"
    assert (shown["what"], shown["every"], shown["rate"], shown["pause_after"]) == ("reconcile", "1m", "5/s", 9)
