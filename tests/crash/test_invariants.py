"""The checker itself: a clean history has no violation, and each invariant goes red on a violation planted for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio

from tests.support import invariants, recorder
from tests.support.invariants import History
from tests.support.journal import Journal, OwnConnection, read_journals
from tests.support.recorder import LeaseChange, Move
from trueup import App, Context, Retry, Snooze, injected
from trueup.events import JobStarted
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
ANN, BOB = UUID(int=1), UUID(int=2)


def second(n: float) -> datetime:
    return NOON + timedelta(seconds=n)


def move(seq: int, before: str | None, after: str | None, **facts: Any) -> Move:
    defaults = {"job": 1, "kind": "send", "holder": None, "term": 0, "attempt": 0, "counted": 0, "max_attempts": 2}
    given = {**defaults, "args": "{}", "at": second(seq), "tx": str(seq), **facts}
    return Move(seq=seq, before=before, after=after, **given)


def started(job: int, term: int, process: int, trust_left: float = 1.0) -> OwnConnection:
    return {"event": "job.started", "job_id": job, "term": term, "process": process, "trust_left": trust_left}


def lost(job: int, term: int, process: int) -> OwnConnection:
    return {"event": "job.claim_lost", "job_id": job, "term": term, "process": process, "refused_by": "database"}


def effect(job: int, key: str = "send:1", content: str = "hello") -> OwnConnection:
    return {"effect": content, "job_id": job, "term": 1, "key": key, "process": 10}


# Ann claims job 1 and is stopped past her lease; it is taken from her, Bob claims it and is done; Ann's finish is refused.
ENQUEUED = move(1, None, "queued")
ANN_CLAIMS = move(2, "queued", "running", holder=ANN, term=1, attempt=1, counted=1)
RESCUED = move(10, "running", "queued", holder=ANN, term=1, attempt=1, counted=1, rescued=True)
BOB_CLAIMS = move(11, "queued", "running", holder=BOB, term=2, attempt=2, counted=2)
DONE = move(12, "running", "done", holder=BOB, term=2, attempt=2, counted=2)
LEASE = LeaseChange(1, "insert", ANN, 10, 5, second(8), None, second(0), "1")

CLEAN = History(
    moves=[ENQUEUED, ANN_CLAIMS, RESCUED, BOB_CLAIMS, DONE],
    leases=[LEASE],
    journal=[started(1, 1, 10), started(1, 2, 20), effect(1), effect(1), lost(1, 1, 10)],
    effects={1: 1},
    transactional=frozenset({"send"}),
    outside=frozenset({"send"}),
    limits={"send": 1},
    most_claimed=1,
)


def with_moves(*moves: Move) -> History:
    return replace(CLEAN, moves=moves)


def unique(*moves: Move) -> History:
    return replace(CLEAN, moves=[replace(each, unique_key="k") for each in moves])


def others(*moves: Move, job: int, first_seq: int) -> list[Move]:
    return [replace(each, job=job, seq=first_seq + n) for n, each in enumerate(moves)]


PLANTED = {
    "I3 a term that did not grow": with_moves(ENQUEUED, ANN_CLAIMS, RESCUED, replace(BOB_CLAIMS, term=1)),
    "I4 two holders at once": with_moves(ENQUEUED, ANN_CLAIMS, BOB_CLAIMS),
    "I4 a claim taken before its lease passed": with_moves(ENQUEUED, ANN_CLAIMS, replace(RESCUED, at=second(5))),
    "I4 a claim that begins before the last one ended": with_moves(
        ENQUEUED, ANN_CLAIMS, RESCUED, replace(BOB_CLAIMS, at=second(9)), DONE
    ),
    "I5 an effect written twice": replace(CLEAN, effects={1: 2}),
    "I5 an effect that is missing": replace(CLEAN, effects={}),
    "I5 an effect of a job that is not done": with_moves(ENQUEUED, ANN_CLAIMS),
    "I6 an effect with other bytes": replace(CLEAN, journal=[effect(1), effect(1, content="other")]),
    "I6 an effect with another key": replace(CLEAN, journal=[effect(1), effect(1, key="send:1b")]),
    "I6 a key that two jobs used": replace(CLEAN, journal=[effect(1), effect(2)]),
    "I6 a done job without its effect": replace(CLEAN, journal=[]),
    "I7 a refused finish that is in the database": replace(CLEAN, journal=[*CLEAN.journal, lost(1, 2, 20)]),
    "I7 a lost run that nobody counted": replace(CLEAN, journal=[started(1, 1, 10), effect(1)]),
    "I9 a claim that counted no attempt": with_moves(
        ENQUEUED, ANN_CLAIMS, RESCUED, replace(BOB_CLAIMS, attempt=1, counted=1)
    ),
    "I9 an attempt above the maximum": with_moves(*(replace(each, max_attempts=1) for each in CLEAN.moves)),
    "I9 a job that died twice": with_moves(
        *CLEAN.moves[:4], replace(DONE, after="dead"), replace(DONE, seq=13, before=None, after="dead")
    ),
    "I9 a dead letter with another payload": with_moves(*CLEAN.moves[:4], replace(DONE, after="dead", args="[1]")),
    "I10 an illegal move": with_moves(ENQUEUED, replace(DONE, before="queued")),
    "I10 a final state that was left": with_moves(*CLEAN.moves, move(13, "done", "queued")),
    "I10 a job that vanished": with_moves(ENQUEUED, move(2, "queued", None)),
    "I10 a move from where the job was not": with_moves(ENQUEUED, DONE),
    "I11 two live jobs with one unique key": unique(ENQUEUED, replace(ENQUEUED, job=2, seq=2)),
    "I11 more running than the limit": with_moves(
        ENQUEUED, ANN_CLAIMS, *others(ENQUEUED, ANN_CLAIMS, job=2, first_seq=3)
    ),
    "I13 a claim of more than was asked for": with_moves(
        ENQUEUED, ANN_CLAIMS, *others(ENQUEUED, ANN_CLAIMS, job=2, first_seq=3)
    ),
    "I18 a start after the deadline": replace(CLEAN, journal=[started(1, 2, 20, trust_left=-0.2)]),
}


def test_a_clean_history_has_no_violation() -> None:
    assert invariants.check(CLEAN) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_each_planted_violation_is_found(planted: str) -> None:
    number = planted.split()[0]
    found = invariants.CHECKS[number](PLANTED[planted])
    assert found
    assert all(violation.startswith(f"{number}: ") for violation in found)


def test_every_check_has_a_planted_violation() -> None:
    assert {planted.split()[0] for planted in PLANTED} == invariants.CHECKS.keys()


def test_a_snoozed_attempt_may_be_counted_again() -> None:
    snoozed = move(3, "running", "queued", holder=ANN, term=1, attempt=1, counted=0)
    again = move(4, "queued", "running", holder=ANN, term=2, attempt=1, counted=1)
    assert invariants.attempts_are_counted(with_moves(ENQUEUED, ANN_CLAIMS, snoozed, again)) == []


def test_a_revived_job_may_live_and_die_again() -> None:
    dead = replace(DONE, after="dead")
    revived = move(13, "dead", "queued", term=2)
    claimed = move(14, "queued", "running", holder=ANN, term=3, attempt=1, counted=1)
    died = move(15, "running", "dead", holder=ANN, term=3, attempt=1, counted=1)
    history = with_moves(*CLEAN.moves[:4], dead, revived, claimed, died)
    assert invariants.attempts_are_counted(history) + invariants.moves_are_legal(history) == []


def test_a_killed_process_need_not_have_counted_its_lost_runs() -> None:
    history = replace(CLEAN, journal=[started(1, 1, 10), effect(1)], killed=frozenset({10}))
    assert invariants.late_finishes_change_nothing(history) == []


@pytest.mark.parametrize(
    ("moves", "within"), [(CLEAN.moves[:4], timedelta(minutes=1)), (CLEAN.moves, timedelta(seconds=1))]
)
def test_a_job_that_is_live_or_late_after_the_last_fault_is_found(moves: list[Move], within: timedelta) -> None:
    found = invariants.everything_ends_in_time(with_moves(*moves), fault_ended_at=second(8), within=within)
    assert [violation[:4] for violation in found] == ["I8: "]


def test_jobs_that_end_within_the_bound_are_in_time() -> None:
    found = invariants.everything_ends_in_time(CLEAN, fault_ended_at=second(8), within=timedelta(seconds=5))
    assert found == []


def test_an_open_transaction_and_its_lock_are_found(database_url: str) -> None:
    assert invariants.nothing_is_left_open(database_url) == []
    with psycopg.connect(database_url) as forgotten:
        forgotten.execute("select from trueup.jobs for update")
        found = invariants.nothing_is_left_open(database_url)
    assert any("idle in transaction" in violation for violation in found)
    assert any("RowShareLock on trueup.jobs" in violation for violation in found)


def test_a_journal_gives_back_what_processes_said(tmp_path: Path) -> None:
    journal = Journal(tmp_path, trust_left=lambda: 0.5)
    journal(JobStarted(7, "send", "default", 1, 3, 0.0))
    journal.effect(job=7, term=3, key="send:7", content="hello")
    journal.close()
    (written,) = tmp_path.iterdir()
    with written.open("a") as file:
        file.write('{"event": "cut sho')  # what a kill leaves
    start, effect = read_journals(tmp_path)
    assert (start["event"], start["job_id"], start["trust_left"]) == ("job.started", 7, 0.5)
    assert (effect["effect"], effect["key"]) == ("hello", "send:7")


def test_a_journal_that_grows_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.effect(job=1, term=1, key="a", content="one")
    assert [line["effect"] for line in read_journals(tmp_path)] == ["one"]
    journal.effect(job=2, term=1, key="b", content="two")
    (written,) = tmp_path.iterdir()
    whole = written.read_bytes()
    written.write_bytes(whole[:-5])  # it is being written
    assert [line["effect"] for line in read_journals(tmp_path)] == ["one"]
    written.write_bytes(whole)
    assert [line["effect"] for line in read_journals(tmp_path)] == ["one", "two"]
    (tmp_path / "other.jsonl").write_bytes(whole.splitlines()[0].replace(b"one", b"of another") + b"\n")
    assert {line["effect"] for line in read_journals(tmp_path)} == {"one", "two", "of another"}
    journal.close()


@pytest_asyncio.fixture
async def recorded(database_url: str, still: App, worker: ManualWorker) -> str:
    recorder.install(database_url)
    return database_url


@pytest.mark.asyncio
async def test_all_moves_of_jobs_are_recorded_and_found_legal(
    recorded: str, still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    @still.job(retry=Retry(max_attempts=2, first="1s"))
    async def flaky(fails: bool) -> None:
        if fails:
            raise ValueError("no")

    @still.job
    async def sleepy(ctx: Context = injected) -> None:
        if ctx.term == 1:
            raise Snooze("1s")

    dying = await flaky.enqueue(True)
    ids = [dying, await flaky.enqueue(False), await sleepy.enqueue()]
    cancelled = await flaky.using(delay="1h").enqueue(False)
    await still.jobs.cancel([cancelled])
    await worker.run_pending()
    clock.advance(seconds=1)
    await worker.run_pending()
    await still.jobs.revive([dying])
    await worker.run_pending()
    await still.jobs.cancel([dying])

    history = invariants.read_history(recorded)
    moved = [(each.before, each.after) for each in history.by_job()[dying]]
    assert moved == [
        (None, "queued"),
        ("queued", "running"),
        ("running", "queued"),
        ("queued", "running"),
        ("running", "dead"),
        ("dead", "queued"),
        ("queued", "running"),
        ("running", "queued"),
        ("queued", "cancelled"),
    ]
    assert invariants.check(history) == []
    assert invariants.nothing_is_lost(recorded, history, enqueued=[*ids, cancelled]) == []


@pytest.mark.asyncio
async def test_a_rescue_is_recorded_as_one(recorded: str, still: App, worker: ManualWorker, clock: ManualClock) -> None:
    @still.job(retry=Retry(max_attempts=2))
    async def send() -> None: ...

    await send.enqueue()
    for _ in range(2):
        await worker.worker.register()
        await worker.claim()
        clock.advance(minutes=5)
        await worker.rescue()
    moves = [each for each in invariants.read_history(recorded).moves if each.before == "running"]
    assert [(each.after, each.rescued) for each in moves] == [("queued", True), ("dead", True)]


@pytest.mark.asyncio
async def test_changes_made_behind_the_back_of_the_state_machine_are_found(
    recorded: str, still: App, worker: ManualWorker
) -> None:
    @still.job
    async def send() -> None: ...

    vanished, resurrected, doubled = [await send.enqueue() for _ in range(3)]
    await worker.run_pending()
    survivor = await send.using(delay="1h").enqueue()
    with psycopg.connect(recorded, autocommit=True) as connection:
        connection.execute("delete from trueup.history where id = %s", [vanished])
        connection.execute(
            "insert into trueup.jobs (id, kind, queue, lane, run_at, rank, args, max_attempts)"
            " select id, kind, queue, lane, run_at, run_at, args, max_attempts from trueup.history where id = %s",
            [resurrected],
        )
        connection.execute("insert into trueup.history select * from trueup.history where id = %s", [doubled])
    history = invariants.read_history(recorded)
    illegal = invariants.moves_are_legal(history)
    assert any(f"job {vanished} moved from done to None" in violation for violation in illegal)
    assert any(f"job {resurrected} was done and then moved from None" in violation for violation in illegal)
    lost = invariants.nothing_is_lost(recorded, history, enqueued=[vanished, resurrected, doubled, survivor, 10**9])
    assert f"I17: job {vanished} was enqueued and is nowhere" in lost
    assert "I17: job 1000000000 was enqueued and is nowhere" in lost
    assert f"I17: job {doubled} is in 2 places" in lost
    assert not any(f"job {survivor} " in violation for violation in lost)
