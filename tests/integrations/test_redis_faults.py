"""Leases in Redis when commands fail one by one, on one server and on a majority.

Nobody holds the lease in these tests unless they say so: "held elsewhere" would be a lie, and a schedule would skip its run.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis import exceptions

from apps.servers.valkey import Valkey
from tests.support.redis_proxy import Fault, Kind, RedisProxy
from tests.support.waiting import wait_until
from tests.support.watching import Watched, until
from trueup import App, ConfigError, LostLease, NotAcquired
from trueup.clock import elapsed
from trueup.events import JobDropped, LeaseGrantedOpenly, RunHandledElsewhere, RunPostponed
from trueup.integrations import redis
from trueup.integrations.redis import RedisLeases, RedisQuorum, Unknown
from trueup.integrations.redis_servers import MAX_SECONDS, is_away

NAME = "nightly"
TTL = timedelta(seconds=30)
SHORT = timedelta(seconds=2)
BUSY = 10.0  # seconds; what is bounded takes one or two, and without a bound a drip would take thirty

COMMANDS = {"claim": b"return 2", "seal": b"ARGV[3]", "release": b"'del'"}
KINDS: list[Kind] = ["cut", "lost", "late", "drip", "refused"]
REFUSALS = {
    "NOPERM": b"-NOPERM this user has no permissions to run the 'eval' command\r\n",
    "WRONGPASS": b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    "NOAUTH": b"-NOAUTH Authentication required.\r\n",
    "READONLY": b"-READONLY You can't write against a read only replica.\r\n",
    "OOM": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "NOSCRIPT": b"-NOSCRIPT No matching script.\r\n",
    "LOADING": b"-LOADING Redis is loading the dataset in memory\r\n",
    "BUSY": b"-BUSY Redis is busy running a script.\r\n",
    "MISCONF": b"-MISCONF Errors writing to the AOF file\r\n",
    "MOVED": b"-MOVED 3999 127.0.0.1:6381\r\n",
    "CLUSTERDOWN": b"-CLUSTERDOWN The cluster is down\r\n",
    "MASTERDOWN": b"-MASTERDOWN Link with MASTER is down\r\n",
    "WRONGTYPE": b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    "too many clients": b"-ERR max number of clients reached\r\n",
    "not Redis": b"HTTP/1.1 400 Bad Request\r\n",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Valkey]]:
    """Three servers that nobody stops."""
    with ExitStack() as stack:
        yield [stack.enter_context(Valkey()) for _ in range(3)]


@pytest.fixture
def proxies(servers: list[Valkey]) -> Iterator[list[RedisProxy]]:
    for server in servers:
        server.flush()
    with ExitStack() as stack:
        yield [stack.enter_context(RedisProxy(server.url)) for server in servers]


@pytest.fixture
def proxy(proxies: list[RedisProxy]) -> RedisProxy:
    return proxies[0]


@pytest.fixture
def made(database_url: str) -> Iterator[Any]:
    """Makes backends, each as a holder's own."""
    app = App(database_url)
    backends: list[RedisQuorum] = []

    def make(*proxies: RedisProxy, **options: Any) -> RedisQuorum:
        urls = [proxy.url for proxy in proxies]
        terms = app.store.terms
        one = len(urls) == 1
        backend = RedisLeases(urls[0], terms, "t", **options) if one else RedisQuorum(urls, terms, "t")
        backends.append(backend)
        return backend

    yield make
    for backend in backends:
        backend.close()
    app.close_sync()


def acquire(backend: RedisQuorum, holder: UUID, ttl: timedelta = TTL) -> int | str:
    """The term, or why it was not found out; "held" when another holder is said to have it."""
    began = elapsed()
    try:
        return backend.acquire(NAME, holder, ttl) or "held"
    except NotAcquired as unknown:
        return unknown.reason if unknown.unreachable else "held"
    finally:
        assert elapsed() - began < BUSY


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_one_server_whatever_fails_it_is_never_held_elsewhere_when_it_is_not(
    proxy: RedisProxy, made: Any, command: str, kind: Kind
) -> None:
    fault = proxy.fail(Fault(COMMANDS[command], kind, times=1_000))
    backend, holder = made(proxy), uuid4()
    first = acquire(backend, holder)
    if command == "release":
        assert isinstance(first, int)
        with pytest.raises(ConnectionError):
            backend.release(NAME, holder, first)
    else:
        assert isinstance(first, str)
        assert first != "held"
    assert fault.happened
    proxy.heal()
    if command != "release":
        assert isinstance(acquire(backend, holder), int), "what it left behind is its own"
        assert acquire(made(proxy), uuid4()) == "held", "now it is"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["claim", "seal"])
def test_what_an_attempt_left_behind_is_not_a_holder_for_others(
    proxy: RedisProxy, made: Any, command: str, kind: Kind
) -> None:
    proxy.fail(Fault(COMMANDS[command], kind, times=1_000))
    proxy.fail(Fault(COMMANDS["release"], "refused", times=1_000))
    acquire(made(proxy), uuid4())
    proxy.heal()
    left = acquire(made(proxy), uuid4())
    if (command, kind) in {("seal", "lost"), ("seal", "late")}:
        assert left == "held", "it was sealed, as far as Redis knows, and is until its ttl is over"
    else:
        assert left != "held"


@pytest.mark.parametrize("kind", KINDS)
def test_a_renewal_of_one_server_that_fails_is_not_a_lost_lease(proxy: RedisProxy, made: Any, kind: Kind) -> None:
    backend, holder = made(proxy), uuid4()
    term = acquire(backend, holder)
    fault = proxy.fail(Fault(COMMANDS["seal"], kind))
    began = elapsed()
    with pytest.raises(ConnectionError):
        backend.renew(NAME, holder, term, TTL)
    assert elapsed() - began < BUSY
    assert fault.happened == 1
    assert backend.renew(NAME, holder, term, TTL)


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_quorum_with_one_server_that_fails_works_as_if_it_were_down(
    proxies: list[RedisProxy], made: Any, command: str, kind: Kind
) -> None:
    fault = proxies[1].fail(Fault(COMMANDS[command], kind, times=1_000))
    backend, holder = made(*proxies), uuid4()
    term = acquire(backend, holder, SHORT)
    assert isinstance(term, int)
    for _ in range(3):
        assert backend.renew(NAME, holder, term, SHORT)
    backend.release(NAME, holder, term)
    wait_until(lambda: fault.happened, "the fault has struck")
    assert isinstance(acquire(made(*proxies), uuid4(), SHORT), int)


@pytest.mark.parametrize("kind", ["late", "drip"])
def test_a_minority_that_does_not_answer_costs_a_quorum_no_time(
    proxies: list[RedisProxy], made: Any, kind: Kind
) -> None:
    proxies[0].fail(Fault(b"EVAL", kind, times=1_000))
    backend, holder = made(*proxies), uuid4()
    began = elapsed()
    term = acquire(backend, holder)
    for _ in range(10):
        assert backend.renew(NAME, holder, term, TTL)
        assert acquire(made(*proxies), uuid4()) == "held"
    assert elapsed() - began < 22 * MAX_SECONDS / 2


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["claim", "seal"])
def test_a_quorum_whose_majority_fails_does_not_know(
    proxies: list[RedisProxy], made: Any, command: str, kind: Kind
) -> None:
    for proxy in proxies[1:]:
        proxy.fail(Fault(COMMANDS[command], kind, times=1_000))
    reason = acquire(made(*proxies), uuid4(), SHORT)
    assert "1 of 3 Redis servers answered" in str(reason)


def contend(backends: list[RedisQuorum]) -> list[tuple[RedisQuorum, UUID, int | str]]:
    """What each got that asked in the same moment."""
    start = threading.Barrier(len(backends))
    got: list[tuple[RedisQuorum, UUID, int | str]] = []

    def one(backend: RedisQuorum) -> None:
        holder = uuid4()
        start.wait()
        got.append((backend, holder, acquire(backend, holder)))

    threads = [threading.Thread(target=one, args=[backend]) for backend in backends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def test_of_contenders_that_meet_on_two_of_three_servers_one_wins(proxies: list[RedisProxy], made: Any) -> None:
    proxies[2].fail(Fault(b"EVAL", "cut", times=100_000))
    for _ in range(15):
        got = contend([made(*proxies) for _ in range(2)])
        won = [(backend, holder, term) for backend, holder, term in got if isinstance(term, int)]
        assert len(won) == 1, got
        backend, holder, term = won[0]
        backend.release(NAME, holder, term)


def test_a_claim_that_was_never_completed_is_not_held_elsewhere(
    servers: list[Valkey], proxy: RedisProxy, made: Any
) -> None:
    with servers[0].client() as client:
        client.set(f"t:lease:{NAME}", str(uuid4()), px=60_000)
        assert "has not been completed" in str(acquire(made(proxy), uuid4()))
        for foreign in ("somebody", str(uuid4()) + ":1", "x" * 36, ""):
            client.set(f"t:lease:{NAME}", foreign, px=60_000)
            assert acquire(made(proxy), uuid4()) == "held"


def test_a_lock_of_ours_that_has_lost_its_end_gets_one_and_nobody_elses_does(
    servers: list[Valkey], proxy: RedisProxy, made: Any
) -> None:
    """PERSIST, or a RESTORE without it: no process is there to give it back, and no work would ever run again."""
    key, short = f"t:lease:{NAME}", timedelta(milliseconds=100)
    with servers[0].client() as client:
        for left in (f"{uuid4()}:7", str(uuid4())):
            client.set(key, left)
            # An attempt that met a claim goes on for a while: its end may have come by then.
            acquire(made(proxy), uuid4(), short)
            assert client.pttl(key) != -1, left
        for foreign in ("somebody", f"{uuid4()}:x", "x" * 36, ""):
            client.set(key, foreign)
            assert acquire(made(proxy), uuid4(), short) == "held"
            assert client.pttl(key) == -1, foreign
        client.set(key, f"{uuid4()}:7", px=60_000)
        assert acquire(made(proxy), uuid4(), short) == "held"
        assert client.pttl(key) > 50_000, "and none is cut short"


def test_a_ttl_that_passes_while_the_term_is_made_leaves_it_unknown(
    proxy: RedisProxy, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = made(proxy)
    monkeypatch.setattr(backend, "_in_time", lambda began, ttl: False)
    assert "longer than its ttl" in str(acquire(backend, uuid4()))


# -- open ------------------------------------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["cut", "lost", "late", "drip"])
@pytest.mark.parametrize("command", ["claim", "seal"])
def test_open_gives_it_when_redis_is_away_and_says_so(
    proxy: RedisProxy, database_url: str, command: str, kind: Kind
) -> None:
    app = App(database_url, redis_url=proxy.url, redis_unavailable="open")
    events = Watched(app)
    proxy.fail(Fault(COMMANDS[command], kind, times=1_000))
    with app.lease_sync(NAME, backend="redis") as lease:
        (opened,) = events.of(LeaseGrantedOpenly)
        assert (opened.lease, opened.term) == (NAME, lease.term)
        assert "Redis is unreachable" in opened.reason
    app.close_sync()


@pytest.mark.parametrize("refusal", REFUSALS)
def test_open_never_gives_it_when_redis_refuses(proxy: RedisProxy, database_url: str, refusal: str) -> None:
    app = App(database_url, redis_url=proxy.url, redis_unavailable="open")
    events = Watched(app)
    for command in ("claim", "seal"):
        fault = proxy.fail(Fault(COMMANDS[command], "refused", times=1_000, refusal=REFUSALS[refusal]))
        with pytest.raises(NotAcquired, match="Redis refused") as refused, app.lease_sync(NAME, backend="redis"):
            pass
        assert refused.value.unreachable
        assert fault.happened
        proxy.heal()
    assert not events.of(LeaseGrantedOpenly)
    app.close_sync()


@pytest.mark.parametrize("refusal", ["NOPERM", "READONLY", "OOM", "LOADING"])
def test_open_does_not_keep_it_when_redis_refuses_to_renew(proxy: RedisProxy, made: Any, refusal: str) -> None:
    backend, holder = made(proxy, unavailable="open"), uuid4()
    term = acquire(backend, holder)
    proxy.fail(Fault(COMMANDS["seal"], "refused", times=1_000, refusal=REFUSALS[refusal]))
    with pytest.raises(ConnectionError, match="Redis refused"):
        backend.renew(NAME, holder, term, TTL)


def test_a_wrong_password_is_a_refusal(servers: list[Valkey], made: Any, database_url: str) -> None:
    with servers[0].client() as client:
        client.config_set("requirepass", "right")
    try:
        for url in (servers[0].url, servers[0].url.replace("redis://", "redis://:wrong@")):
            app = App(database_url, redis_url=url, redis_unavailable="open")
            with pytest.raises(NotAcquired, match="Redis refused"), app.lease_sync(NAME, backend="redis"):
                pass
            app.close_sync()
    finally:
        with RedisLeases(servers[0].url.replace("redis://", "redis://:right@"), None, "t")._servers[0]._client as admin:  # type: ignore[arg-type]
            admin.config_set("requirepass", "")


def test_openly_granted_and_back_again_it_is_one_event_each(proxy: RedisProxy, made: Any, database_url: str) -> None:
    app = App(database_url)
    events = Watched(app)
    backend, holder = made(proxy, unavailable="open", events=app.events), uuid4()
    fault = proxy.fail(Fault(b"EVAL", "cut", times=1_000))
    term = acquire(backend, holder)
    assert all(backend.renew(NAME, holder, term, TTL) for _ in range(3))
    assert fault.happened >= 4
    assert len(events.of(LeaseGrantedOpenly)) == 1
    proxy.heal()
    assert backend.renew(NAME, holder, term, TTL), "Redis is told"
    assert acquire(made(proxy), uuid4()) == "held"
    proxy.fail(Fault(b"EVAL", "cut"))
    assert backend.renew(NAME, holder, term, TTL)
    assert len(events.of(LeaseGrantedOpenly)) == 2
    app.close_sync()


# -- what is no quorum ------------------------------------------------------------------------------------------------------


def test_databases_of_one_server_are_no_quorum(servers: list[Valkey], made: Any, database_url: str) -> None:
    base = servers[0].url.rpartition("/")[0]
    for urls in (
        [f"{base}/{n}" for n in range(3)],
        [f"{base}/0", base.replace("redis://", "redis://user@") + "/0", servers[1].url],
    ):
        app = App(database_url, redis_url=",".join(urls))
        with pytest.raises(ConfigError, match="three or more different"), app.lease_sync(NAME, backend="redis"):
            pass
        app.close_sync()


def test_one_server_under_several_addresses_is_no_quorum(
    servers: list[Valkey], proxies: list[RedisProxy], made: Any
) -> None:
    with RedisProxy(servers[0].url) as another, pytest.raises(ConfigError, match="same Redis server"):
        made(proxies[0], another, proxies[2]).acquire(NAME, uuid4(), TTL)
    with servers[0].client() as client:
        assert client.keys() == []


def test_servers_that_do_not_give_their_id_are_taken_for_different_ones(
    proxies: list[RedisProxy], made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "_independent", set())
    for proxy in proxies:
        proxy.fail(Fault(b"INFO", "refused", times=1_000))
    assert isinstance(acquire(made(*proxies), uuid4()), int)


# -- schedules ----------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("command", "kind"), [("claim", "refused"), ("seal", "cut"), ("seal", "drip")])
async def test_a_run_whose_lease_is_unknown_is_postponed_and_not_skipped(
    proxy: RedisProxy, database_url: str, command: str, kind: Kind, sync: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.work.jobs.exclusive.ASK_AGAIN", timedelta(milliseconds=50))
    app = App(database_url, redis_url=proxy.url)
    events, ran = Watched(app), list[int]()
    if sync:

        @app.every("1h", name="nightly", lease="redis")
        def nightly() -> None:
            ran.append(1)
    else:

        @app.every("1h", name="nightly", lease="redis")
        async def nightly() -> None:
            ran.append(1)

    store = await app.open()
    for entry in app._schedules.values():
        await store.schedules.put(entry)
    proxy.fail(Fault(COMMANDS[command], kind, times=1))
    await store.schedules.trigger("nightly")
    async with app.worker():
        await events.seen(RunPostponed)
        await until(lambda: ran)
    assert not events.of(RunHandledElsewhere)
    assert not events.of(JobDropped)
    await app.close()


@pytest.mark.asyncio
async def test_a_lease_that_cannot_be_renewed_is_lost_in_time_also_behind_a_drip(
    proxy: RedisProxy, database_url: str
) -> None:
    app = App(database_url, redis_url=proxy.url)
    with pytest.raises(LostLease):
        async with app.lease(NAME, ttl="2s", backend="redis") as lease:
            proxy.fail(Fault(COMMANDS["seal"], "drip", times=1_000))
            await until(lambda: not lease.held())
            await until(lambda: False)
    await app.close()


def test_unknown_says_whether_redis_was_away() -> None:
    assert Unknown("x", "why", away=True).unreachable
    assert not Unknown("x", "why").away


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (raised(exceptions.ConnectionError("Connection closed by server.")), True),
        (raised(exceptions.TimeoutError("Timeout reading from socket")), True),
        (ConnectionRefusedError(), True),
        (raised(exceptions.ConnectionError("x"), ssl.SSLCertVerificationError("certificate verify failed")), False),
        (ssl.SSLError("wrong version number"), False),
        (exceptions.AuthenticationError("invalid password"), False),
        (exceptions.BusyLoadingError("loading"), False),
        (exceptions.ConnectionError("max number of clients reached"), False),
        (exceptions.InvalidResponse("Protocol Error"), False),
        (ValueError("anything else"), False),
    ],
    ids=repr,
)
def test_only_silence_counts_as_away(error: Exception, away: bool) -> None:
    assert is_away(error) is away
