"""One address against a real chain: what is added, corrected, deleted, and what never is."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apps.addresses import books, jobs, reconciling
from apps.addresses.jobs import Job
from apps.addresses.service import PURGE_AUDIT, PURGE_JOBS
from apps.chain.anvil import Anvil
from tests.apps.addresses.desk import FEE, Desk, Node, counters
from tests.apps.addresses.meddler import Meddler
from tests.support.proxy import Proxy
from trueup import LostClaim
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

OPEN = Callable[..., Awaitable[Desk]]


@pytest.fixture
def people(node: Node) -> list[str]:
    return [*node.accounts()]


async def test_a_first_job_reads_all_and_adds_what_is_missing(desk: Desk, node: Node, people: list[str]) -> None:
    ada, bob, eve = people[:3]
    sent = [node.pay(ada, bob, 5), node.pay(bob, ada, 7)]
    node.mine()
    other = node.pay(eve, bob, 9)
    node.mine(3)
    await desk.monitor(ada)
    job = await desk.reconcile(ada)
    assert counters(job) == ((2, 2, 0, 0), "completed")
    assert (job["mode"], job["effective_mode"], job["from_block"], job["to_block"]) == ("partial", "full", 0, 4)
    assert (job["final_block"], job["attempts"], job["error"]) == (4, 1, None)
    assert job["created_at"] <= job["started_at"] <= job["completed_at"]
    assert await desk.here() == dict.fromkeys(sent, 1)
    assert other not in await desk.here()
    assert await desk.checkpoint(ada) == 4
    row = await desk.one("select * from transactions where hash = %s", [sent[0]])
    assert (row["from_address"], row["to_address"], row["value"], row["fee"]) == (ada, bob, 5, FEE)
    assert row["succeeded"] is True
    assert sorted(await desk.audit(job["id"])) == sorted(("added", each) for each in sent)


async def test_a_second_job_changes_nothing(desk: Desk, node: Node, people: list[str]) -> None:
    node.pay(people[0], people[1], 5)
    node.mine()
    await desk.monitor(people[0])
    await desk.reconcile(people[0])
    job = await desk.reconcile(people[0])
    assert counters(job) == ((1, 0, 0, 0), "completed")
    assert job["effective_mode"] == "partial"
    assert await desk.audit(job["id"]) == []


async def test_a_partial_job_reads_from_the_reorganisation_depth_before_the_checkpoint(desk: Desk, node: Node) -> None:
    address = node.accounts()[0]
    node.mine(50)
    await desk.monitor(address, checkpoint=40)
    job = await desk.reconcile(address)
    assert (job["effective_mode"], job["from_block"], job["to_block"]) == ("partial", 8, 50)


async def test_what_is_older_than_the_window_is_left_alone(desk: Desk, node: Node) -> None:
    address = node.accounts()[0]
    node.mine(50)
    await desk.monitor(address, checkpoint=40)
    await made_up(desk, "0x01", address, 7)
    await made_up(desk, "0x02", address, 8)
    await made_up(desk, "0x03", address, 51)  # above what the node has
    job = await desk.reconcile(address)
    assert await desk.audit(job["id"]) == [("soft_deleted", "0x02")]
    assert set(await desk.here()) == {"0x01", "0x03"}
    row = await desk.one("select * from transactions where hash = '0x02'")
    assert row["deleted_at"] is not None
    assert row["deletion_reason"] == "not on the chain"


async def made_up(desk: Desk, hash: str, address: str, block: int, count: int = 1) -> None:
    """Local rows that the chain does not have."""
    await desk.do(
        "insert into transactions (chain, hash, block_number, from_address, to_address, value, fee, succeeded)"
        " select 'ethereum', case n when 1 then %(hash)s else %(hash)s || n end, %(block)s, %(address)s, %(address)s, 1, 1, true"
        " from generate_series(1, %(count)s) as n",
        {"hash": hash, "block": block, "address": address, "count": count},
    )


async def test_fields_that_differ_are_corrected_and_told_of(desk: Desk, node: Node, people: list[str]) -> None:
    ada, bob = people[:2]
    sent = node.pay(ada, bob, 5)
    node.mine()
    await desk.monitor(ada)
    await desk.reconcile(ada)
    await desk.do("update transactions set value = 6, fee = 1, block_number = 3, to_address = null")
    job = await desk.reconcile(ada)
    assert counters(job) == ((1, 0, 0, 1), "completed")
    told = await desk.one("select * from reconciliation_audit_log where job = %s", [job["id"]])
    assert (told["action"], told["transaction"]) == ("discrepancy", sent)
    differing = {name for name in told["before"] if told["before"][name] != told["after"][name]}
    assert differing == {"value", "fee", "block_number", "to_address"}
    assert (told["before"]["value"], told["after"]["value"]) == ("6", "5")
    assert await desk.here() == {sent: 1}


async def test_after_a_reorganisation_what_is_gone_is_deleted_and_what_is_new_is_added(
    desk: Desk, node: Node, people: list[str]
) -> None:
    ada, bob = people[:2]
    kept = node.pay(ada, bob, 1)
    node.mine()
    gone = node.pay(ada, bob, 2)
    node.mine(2)
    await desk.monitor(ada, bob)
    await desk.reconcile(ada)
    assert await desk.here() == {kept: 1, gone: 2}
    node.call("anvil_reorg", 2, [])
    new = node.pay(ada, bob, 3)
    node.mine()
    job = await desk.reconcile(ada)
    assert counters(job) == ((2, 1, 1, 0), "completed")
    assert await desk.here() == {kept: 1, new: 4}
    assert sorted(await desk.audit(job["id"])) == sorted([("added", new), ("soft_deleted", gone)])
    second = await desk.reconcile(bob)
    assert counters(second) == ((2, 0, 0, 0), "completed"), "it was the same transactions"


async def test_a_transaction_that_comes_back_is_restored(desk: Desk, node: Node, people: list[str]) -> None:
    ada, bob = people[:2]
    before = node.call("evm_snapshot")
    sent = node.pay(ada, bob, 2, nonce=0)
    node.mine()
    await desk.monitor(ada)
    await desk.reconcile(ada)
    node.call("evm_revert", before)
    node.mine(3)
    gone = await desk.reconcile(ada)
    assert await desk.here() == {}
    assert node.pay(ada, bob, 2, nonce=0) == sent
    node.mine()
    back = await desk.reconcile(ada)
    assert await desk.here() == {sent: 4}
    assert await desk.audit(gone["id"]) == [("soft_deleted", sent)]
    assert await desk.audit(back["id"]) == [("added", sent)]
    told = await desk.one("select before, after from reconciliation_audit_log where job = %s", [back["id"]])
    assert (told["before"]["deleted"], told["before"]["block_number"], told["after"]["block_number"]) == (True, 1, 4)


async def test_a_transaction_that_moved_to_a_later_page_is_never_deleted_meanwhile(
    open_desk: OPEN, node: Node, people: list[str]
) -> None:
    desk = await open_desk(RECONCILIATION_PROVIDERS=f"ethereum={node.url}", RECONCILIATION_PAGE_BLOCKS="2")
    ada, bob = people[:2]
    before = node.call("evm_snapshot")
    sent = node.pay(ada, bob, 2, nonce=0)
    node.mine()
    await desk.monitor(ada)
    await desk.reconcile(ada)
    node.call("evm_revert", before)
    node.mine(6)
    node.pay(ada, bob, 2, nonce=0)
    node.mine(4)
    job = await desk.reconcile(ada)
    assert await desk.audit(job["id"]) == [("discrepancy", sent)]
    assert await desk.here() == {sent: 7}


async def test_addresses_in_capitals_are_the_same_ones(desk: Desk, node: Node, people: list[str]) -> None:
    sent = node.pay(people[0], people[1], 2)
    node.mine()
    await desk.monitor("0x" + people[0][2:].upper())
    await desk.tick()
    await desk.sweep()
    (job,) = await desk.jobs()
    assert (job["address"], job["status"]) == (people[0], "completed")
    assert await desk.here() == {sent: 1}


# -- what must never delete anything ----------------------------------------------------------------------------------


async def set_up(desk: Desk, node: Node) -> str:
    """An address with a transaction, and one that would be deleted if the chain could be read."""
    ada, bob = node.accounts()[:2]
    node.pay(ada, bob, 2)
    node.mine()
    await desk.monitor(ada)
    await desk.reconcile(ada)
    await made_up(desk, "0x01", ada, 1)
    return ada


async def expect_nothing_lost(desk: Desk, address: str, job: int, error: str) -> None:
    shown = await desk.show(job)
    assert error in shown["error"]
    assert shown["soft_deleted"] == 0
    assert len(await desk.here()) == 2
    assert {action for action, _ in await desk.audit(job)} == {"error"}
    assert await desk.checkpoint(address) == 1


async def test_a_node_that_is_down_costs_attempts_and_nothing_else(
    desk: Desk, node: Node, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    ada = await set_up(desk, node)
    node.stop()
    job = await desk.job(ada)
    for attempt, seconds in [(1, 0), (2, 5), (3, 15), (4, 45), (5, 135)]:
        clock.advance(seconds=seconds)
        assert (await desk.sweep()).claimed == 1
        assert (await desk.show(job))["attempts"] == attempt
    assert (await desk.show(job))["status"] == "failed"
    await expect_nothing_lost(desk, ada, job, "ChainUnavailable")
    assert len(await desk.audit(job)) == 5
    given_up = [record for record in caplog.records if record.message == "Reconciliation given up"]
    assert [record.levelno for record in given_up] == [logging.ERROR]


async def test_a_node_that_comes_back_is_asked_again_by_itself(open_desk: OPEN, node: Node, clock: ManualClock) -> None:
    with Proxy(("127.0.0.1", node.port)) as way:
        desk = await open_desk(RECONCILIATION_PROVIDERS=f"ethereum=http://127.0.0.1:{way.port}")
        ada = await set_up(desk, node)
        job = await desk.job(ada)
        way.cut()
        await desk.sweep()
        assert (await desk.show(job))["status"] == "pending"
        await expect_nothing_lost(desk, ada, job, "ChainUnavailable")
        way.heal()
        clock.advance(seconds=5)
        await desk.sweep()
    assert counters(await desk.show(job)) == ((1, 0, 1, 0), "completed")


async def test_a_node_that_hangs_is_an_error(open_desk: OPEN, node: Node) -> None:
    desk = await open_desk(RECONCILIATION_PROVIDERS=f"ethereum={node.url}", RECONCILIATION_PROVIDER_TIMEOUT="200ms")
    ada = await set_up(desk, node)
    job = await desk.job(ada)
    with node.hanging():
        await desk.sweep()
    await expect_nothing_lost(desk, ada, job, "in time")


async def test_a_node_that_was_wiped_is_behind_and_says_nothing(desk: Desk, node: Node) -> None:
    ada = await set_up(desk, node)
    await desk.do("update addresses set last_reconciled_block = 40")
    await desk.do("update transactions set block_number = 20")
    job = await desk.job(ada)
    full = await desk.job(node.accounts()[1], "full")
    await desk.monitor(node.accounts()[1], checkpoint=40)
    await desk.sweep()
    assert "NodeBehind" in (await desk.show(job))["error"]
    assert "NodeBehind" in (await desk.show(full))["error"]
    assert len(await desk.here()) == 2


@pytest.mark.parametrize(
    ("first", "read", "error"),
    [(0, 0, None), (0, 2, None), (10**12 - 32, 10**12 - 32, None), (0, 500, "NodeBehind: the node is at block 3")],
)
async def test_what_was_read_proves_where_a_node_has_been_and_a_height_it_named_does_not(
    desk: Desk, node: Node, first: int, read: int, error: str | None
) -> None:
    """It said once that it was at block 10**12; the blocks from `first` on and before `read` were read of it."""
    address = node.accounts()[5]
    node.mine(3)
    await desk.monitor(address)
    job = await desk.job(address)
    await desk.do(
        "update reconciliation_jobs set effective_mode = 'full', from_block = %s, to_block = 10 ^ 12, next_block = %s",
        [first, read],
    )
    await desk.sweep()
    shown = await desk.show(job)
    if error is None:
        assert (shown["status"], shown["to_block"], shown["final_block"]) == ("completed", 3, 3)
    else:
        assert (shown["status"], shown["soft_deleted"]) == ("pending", 0)
        assert error in shown["error"]


async def test_a_node_of_another_chain_says_nothing(open_desk: OPEN, node: Node) -> None:
    desk = await open_desk(RECONCILIATION_PROVIDERS=f"polygon={node.url}")
    address = node.accounts()[0]
    await desk.monitor(address, chain="polygon")
    job = await desk.reconcile(address, chain="polygon")
    assert "the node for polygon is one of chain 1, not 137" in job["error"]
    assert job["status"] == "pending"


async def test_a_chain_without_a_provider_fails_clearly_and_at_once(desk: Desk) -> None:
    address = "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq"
    await desk.monitor(address, chain="bitcoin", checkpoint=800_000)
    job = await desk.reconcile(address, chain="bitcoin")
    assert (job["status"], job["attempts"]) == ("failed", 1)
    assert "no provider for chain bitcoin" in job["error"]
    assert job["completed_at"] is not None


async def test_an_address_that_was_removed_meanwhile_fails_clearly(desk: Desk, node: Node) -> None:
    job = await desk.reconcile(node.accounts()[0])
    assert job["status"] == "failed"
    assert "any more" in job["error"]


# -- the checkpoint, progress, and who may write ----------------------------------------------------------------------


async def test_the_checkpoint_never_goes_back(desk: Desk, node: Node) -> None:
    address = node.accounts()[0]
    node.mine(10)
    await desk.monitor(address, checkpoint=20)
    job = await desk.reconcile(address)
    assert (job["status"], job["final_block"]) == ("completed", 10)
    assert await desk.checkpoint(address) == 20


async def test_the_height_is_that_of_the_start(desk: Desk, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, bob = node.accounts()[:2]
    node.mine(3)
    await desk.monitor(ada)
    original = books.local

    async def later(*arguments: Any) -> Any:
        node.pay(ada, bob, 1)
        node.mine()
        return await original(*arguments)

    monkeypatch.setattr(books, "local", later)
    job = await desk.reconcile(ada)
    assert (job["to_block"], job["final_block"], await desk.checkpoint(ada), node.height()) == (3, 3, 3, 4)


async def test_progress_is_saved_every_hundred_transactions(
    desk: Desk, node: Node, people: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = people[:2]
    for number in range(250):
        node.pay(ada, bob, number)
    node.mine()
    await desk.monitor(ada)
    saved: list[tuple[int, int | None]] = []
    original = jobs.advance

    async def advance(tx: Any, job: Job, counts: books.Counts, *reached: Any) -> None:
        saved.append((counts.checked, reached[0] if reached else None))
        await original(tx, job, counts, *reached)

    monkeypatch.setattr(jobs, "advance", advance)
    job = await desk.reconcile(ada)
    assert saved == [(100, None), (100, None), (50, 2)]
    assert counters(job) == ((250, 250, 0, 0), "completed")


async def test_a_resumed_job_does_not_take_what_it_has_handled_for_orphans(
    open_desk: OPEN, node: Node, people: list[str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = await open_desk(RECONCILIATION_PROVIDERS=f"ethereum={node.url}", RECONCILIATION_PAGE_BLOCKS="2")
    ada, bob = people[:2]
    sent = []
    for number in range(6):
        sent.append(node.pay(ada, bob, number))
        node.mine()
    await desk.monitor(ada)
    await made_up(desk, "0x01", ada, 1)
    original, calls = books.write, 0

    async def broken(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise ConnectionError("in the middle")
        return await original(*arguments)

    monkeypatch.setattr(books, "write", broken)
    job = await desk.reconcile(ada)
    assert (job["status"], job["next_block"], job["added"]) == ("pending", 4, 3)
    clock.advance(seconds=5)
    await desk.sweep()
    job = await desk.show(job["id"])
    assert counters(job) == ((6, 6, 1, 0), "completed")
    assert job["attempts"] == 2
    assert set(await desk.here()) == set(sent)
    actions = [action for action, _ in await desk.audit(job["id"])]
    assert sorted(actions) == ["added"] * 6 + ["error", "soft_deleted"]


@pytest.mark.parametrize("noticed", ["between attempts", "between pages"])
async def test_a_transaction_that_moved_to_where_a_job_has_read_already_is_not_deleted(
    open_desk: OPEN, node: Node, people: list[str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch, noticed: str
) -> None:
    desk = await open_desk(RECONCILIATION_PROVIDERS=f"ethereum={node.url}", RECONCILIATION_PAGE_BLOCKS="2")
    ada, bob = people[:2]
    before = node.call("evm_snapshot")
    node.mine(4)
    sent = node.pay(ada, bob, 2, nonce=0)
    node.mine(4)
    await desk.monitor(ada)
    await desk.reconcile(ada)
    assert await desk.here() == {sent: 5}

    def reorganise() -> None:
        node.call("evm_revert", before)
        node.pay(ada, bob, 2, nonce=0)
        node.mine(8)

    original, calls = books.write, 0

    async def write(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            reorganise()
            if noticed == "between attempts":
                raise ConnectionError("in the middle")
        return await original(*arguments)

    monkeypatch.setattr(books, "write", write)
    desk.forget()
    job = await desk.reconcile(ada)
    assert job["status"] == "pending"
    while (await desk.show(job["id"]))["status"] == "pending":
        clock.advance(seconds=60)
        await desk.sweep()
        assert calls < 50
    job = await desk.show(job["id"])
    assert (job["status"], job["soft_deleted"]) == ("completed", 0)
    assert await desk.here() == {sent: 1}
    assert [action for action, _ in await desk.audit(job["id"]) if action != "error"] == ["discrepancy"]


async def test_a_node_of_another_chain_in_the_middle_of_a_job_changes_nothing(
    open_desk: OPEN, node: Node, people: list[str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Meddler(node.url) as meddler, Anvil("--no-mining", "--chain-id", "5") as other:
        desk = await open_desk(RECONCILIATION_PROVIDERS=f"ethereum={meddler.url}", RECONCILIATION_PAGE_BLOCKS="2")
        ada, bob = people[:2]
        node.mine(4)
        sent = node.pay(ada, bob, 2)
        node.mine(4)
        other.mine(8)
        await desk.monitor(ada)
        await desk.reconcile(ada)
        desk.forget()
        asked = len(meddler.asked_at)
        meddler.alter = lambda _, answers: answers if len(meddler.asked_at) < asked + 3 else 503
        job = await desk.reconcile(ada)
        assert job["next_block"] > 0
        meddler.alter = lambda _, answers: answers
        meddler.upstream = other.url
        clock.advance(seconds=5)
        await desk.sweep()
        assert "one of chain 5, not 1" in (await desk.show(job["id"]))["error"]
        assert await desk.here() == {sent: 5}


async def test_many_orphans_are_deleted_in_parts(desk: Desk, node: Node) -> None:
    address = node.accounts()[0]
    node.mine(3)
    await desk.monitor(address)
    await made_up(desk, "0x01", address, 2, count=250)
    job = await desk.reconcile(address)
    assert counters(job) == ((0, 0, 250, 0), "completed")
    assert len(await desk.audit(job["id"])) == 250


async def test_two_jobs_that_share_transactions_do_not_take_them_for_orphans(
    desk: Desk, node: Node, people: list[str]
) -> None:
    ada, bob = people[:2]
    for number in range(20):
        node.pay(ada, bob, number)
        node.mine()
    await desk.monitor(ada, bob)
    for _ in range(3):
        for address in (ada, bob):
            await desk.job(address)
        await desk.sweep()  # at the same time
    assert len(await desk.here()) == 20
    assert [action for action, _ in await desk.audit()] == ["added"] * 20


async def test_a_job_that_takes_long_lets_others_go_first(
    open_desk: OPEN, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = await open_desk(
        RECONCILIATION_PROVIDERS=f"ethereum={node.url}", RECONCILIATION_PAGE_BLOCKS="1", RECONCILIATION_TURN_FOR="1s"
    )
    address = node.accounts()[0]
    node.mine(2)
    await desk.monitor(address)
    original = books.local

    async def slow(*arguments: Any) -> Any:
        desk.clock.advance(seconds=2)
        return await original(*arguments)

    monkeypatch.setattr(books, "local", slow)
    seen = []
    job = await desk.job(address)
    while (await desk.show(job))["status"] != "completed":
        desk.clock.advance(seconds=1)
        await desk.sweep()
        seen.append((await desk.show(job))["next_block"])
        assert len(seen) < 9
    assert seen == [1, 2, 3]
    assert (await desk.show(job))["attempts"] == 1


async def test_whoever_has_lost_its_claim_writes_nothing(desk: Desk, node: Node) -> None:
    address = node.accounts()[0]
    await desk.monitor(address)
    job = await desk.job(address)
    await desk.do("update reconciliation_jobs set status = 'running', version = 2 where id = %s", [job])
    old = Job(job, address, "ethereum", "partial", None, None, None, None, None, version=1)
    with pytest.raises(LostClaim):
        async with desk.app.transaction() as tx:
            await books.note_error(tx, job, "from the past")
            await jobs.advance(tx, old, books.Counts(added=1))
    assert await desk.audit(job) == []
    assert (await desk.show(job))["added"] == 0


async def test_jobs_that_are_over_and_their_audit_are_kept_for_a_time(desk: Desk, node: Node) -> None:
    ada = await set_up(desk, node)
    waiting = await desk.job(ada)
    await desk.do("update reconciliation_jobs set completed_at = %s where status = 'completed'", [desk.clock.now()])
    await desk.do("update reconciliation_audit_log set created_at = %s", [desk.clock.now()])
    for days, jobs_left, audit_left in [(89, 2, 1), (2, 1, 1), (310, 1, 0)]:
        desk.clock.advance(hours=24 * days)
        for name in (PURGE_JOBS, PURGE_AUDIT):
            await desk.worker.sweep(name)
        assert (len(await desk.jobs()), len(await desk.audit())) == (jobs_left, audit_left)
    assert [job["id"] for job in await desk.jobs()] == [waiting]


async def test_what_a_node_says_is_stored_whatever_it_is(desk: Desk, node: Node) -> None:
    assert reconciling.printable("a\x00b\ud800" + "c" * 5000) == "a�b�" + "c" * 1996
