"""Leases in Redis or Valkey: on one server, or on a majority of several.

Redis only makes it unlikely that two work at once. It forgets: a server restarted without persistence, a flush, a failover
to a replica that lags, a clock that jumps, and the next one gets the lease while the first still works. So every holder's
term comes from PostgreSQL, and `lease.fence(tx)` inside the holder's transaction refuses whoever is not the newest. That,
and not Redis, is what makes a write safe.

Taking it is done in this order, and each step has its reason:

1. `SET key holder NX PX ttl`. Before the term is made, because making one ends the fence of the holder before us: somebody
   who merely asks must not do that.
2. The term, from PostgreSQL.
3. The value becomes `holder:term`, if the key is still ours: PostgreSQL may have been slow. From here on renewing and giving
   back compare the whole value, in one script each, so neither can touch what belongs to a later holder.

When Redis cannot be reached nobody gets the lease (`unavailable="closed"`), and whoever has it is told when its time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

from trueup.clock import elapsed
from trueup.dsn import mask
from trueup.errors import ConfigError, NotAcquired
from trueup.store.leases import Terms

try:
    from redis import Redis, RedisError
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:  # pragma: no cover - the tests have it
    raise ConfigError('leases in Redis need the redis package: pip install "trueup[redis]"') from error

Unavailable = Literal["closed", "open"]

MOST_SECONDS = 0.5  # for a connection or an answer; with a dead server among several, each try costs this much
DRIFT = 0.01  # how much faster a server's clock may run than ours, as a part of the ttl
DRIFT_LEAST = 0.002  # seconds: expiry in Redis is by whole milliseconds

# Old and new value are the same for a renewal, and differ once: when the term has been made.
EXTEND = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
RELEASE = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('del', KEYS[1])
"""


class Votes(NamedTuple):
    """What the servers said. `errors` are of those that said nothing."""

    yes: int
    no: int
    errors: tuple[str, ...]


class RedisQuorum:
    """A lease on the majority of several independent servers (Redlock): one of three, or two of five, may be down.

    Limits: the servers must not be replicas of one another. One that restarts without what it knew may vote twice, so keep
    it away for the longest ttl, or persist every write. A holder that loses the majority is told so; a server that comes
    back empty does not get its key again until the lease is taken anew.
    """

    def __init__(self, urls: Sequence[str], terms: Terms, schema: str, key: str | None = None) -> None:
        if len(urls) < 3 or len(set(urls)) < len(urls):
            raise ConfigError("a quorum needs three or more different Redis servers; an even number adds no safety")
        self._servers = [connect(url) for url in urls]
        self._terms = terms
        self._schema = schema
        self._own_key = key

    @property
    def majority(self) -> int:
        return len(self._servers) // 2 + 1

    def acquire(self, name: str, holder: UUID, ttl: timedelta) -> int | None:
        began = elapsed()
        claim = str(holder)
        votes = self._ask(lambda server: server.set(self._key(name), claim, nx=True, px=milliseconds(ttl)))
        term = None
        try:
            if votes.yes >= self.majority and self._in_time(began, ttl):
                term = self._seal(name, holder, claim, ttl, began)
        finally:
            if term is None and (votes.yes or votes.errors):  # who did not answer may have said yes
                self._give_back(name, claim)
        if len(votes.errors) > len(self._servers) - self.majority:
            raise NotAcquired(name, self._unreachable(votes), unreachable=True)
        return term

    def _seal(self, name: str, holder: UUID, claim: str, ttl: timedelta, began: float) -> int | None:
        term = self._terms.mint(self.fence_name(name), holder)
        if term is None:
            return None
        votes = self._swap(name, claim, value(holder, term), ttl)
        if votes.yes >= self.majority and self._in_time(began, ttl):
            return term
        self._give_back(name, value(holder, term))
        return None

    def renew(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        began = elapsed()
        mine = value(holder, term)
        votes = self._swap(name, mine, mine, ttl)
        if votes.yes >= self.majority:
            return self._in_time(began, ttl)
        if votes.yes + len(votes.errors) < self.majority:
            return False
        raise ConnectionError(self._unreachable(votes))

    def release(self, name: str, holder: UUID, term: int) -> None:
        votes = self._give_back(name, value(holder, term))
        if len(votes.errors) > len(self._servers) - self.majority:
            raise ConnectionError(self._unreachable(votes))

    def renew_every(self, ttl: timedelta) -> float:
        return ttl.total_seconds() / 3

    def fence_name(self, name: str) -> str:
        # No name has a sign in it: a key is never taken for the name of another lease.
        return f"redis:{name}" if self._own_key is None else f"redis:={self._own_key}"

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def _key(self, name: str) -> str:
        # Two schemas are two installations: their leases of the same name are different ones, unless they name a key.
        return f"{self._schema}:lease:{name}" if self._own_key is None else self._own_key

    def _swap(self, name: str, old: str, new: str, ttl: timedelta) -> Votes:
        return self._ask(lambda server: server.eval(EXTEND, 1, self._key(name), old, new, milliseconds(ttl)))

    def _give_back(self, name: str, mine: str) -> Votes:
        """On all servers, also those that did not answer before."""
        return self._ask(lambda server: server.eval(RELEASE, 1, self._key(name), mine))

    def _ask(self, question: Callable[[Any], Any]) -> Votes:
        answers, errors = [], []
        for server in self._servers:
            try:
                answers.append(bool(question(server)))
            except (RedisError, OSError) as error:
                errors.append(mask(str(error)) or type(error).__name__)
        return Votes(answers.count(True), answers.count(False), tuple(errors))

    def _in_time(self, began: float, ttl: timedelta) -> bool:
        """Whether the first key that was set is surely still there."""
        lasts = ttl.total_seconds()
        return elapsed() - began < lasts - (lasts * DRIFT + DRIFT_LEAST)

    def _unreachable(self, votes: Votes) -> str:
        answered = len(self._servers) - len(votes.errors)
        return f"{answered} of {len(self._servers)} Redis servers answered: {'; '.join(votes.errors)}"


class RedisLeases(RedisQuorum):
    """A lease on one server.

    With `unavailable="open"` whoever asks while Redis cannot be reached gets the lease all the same, everybody at once, and
    keeps it until Redis is back and knows of somebody else. Terms are made as ever, so of those who fence their
    transactions only the newest writes. It is for work that may run twice but must run.
    """

    def __init__(
        self, url: str, terms: Terms, schema: str, unavailable: Unavailable = "closed", key: str | None = None
    ) -> None:
        self._servers = [connect(url)]
        self._terms = terms
        self._schema = schema
        self._own_key = key
        self._unavailable = unavailable
        self._opened = False

    def acquire(self, name: str, holder: UUID, ttl: timedelta) -> int | None:
        try:
            return super().acquire(name, holder, ttl)
        except NotAcquired:
            if self._unavailable == "closed":
                raise
            self._opened = True
            return self._terms.mint(self.fence_name(name), holder)

    def renew(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        try:
            return super().renew(name, holder, term, ttl) or (self._opened and self._enter(name, holder, term, ttl))
        except ConnectionError:
            if self._unavailable == "closed":
                raise
            self._opened = True
            return True

    def _enter(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        """Redis is back: it gets to know who has the lease, unless it knows better."""
        self._opened = False
        mine = value(holder, term)
        votes = self._ask(lambda server: server.set(self._key(name), mine, nx=True, px=milliseconds(ttl)))
        return votes.yes > 0

    def _unreachable(self, votes: Votes) -> str:
        return f"Redis cannot be reached: {'; '.join(votes.errors)}"


def leases(
    urls: Sequence[str], terms: Terms, schema: str, unavailable: Unavailable, key: str | None = None
) -> RedisQuorum:
    """What `redis_url` and `redis_unavailable` ask for, under schema and name, or a `key` that others know, too.

    An "open" quorum would be none.
    """
    if len(urls) == 1:
        return RedisLeases(urls[0], terms, schema, unavailable, key)
    if unavailable == "open":
        raise ConfigError("redis_unavailable='open' is for one server; with several, a majority decides")
    return RedisQuorum(urls, terms, schema, key)


def connect(url: str) -> Redis:
    """A client that connects when it is first used, and that gives up soon: a renewal that waits is a renewal missed."""
    try:
        return Redis.from_url(
            url,
            socket_timeout=MOST_SECONDS,
            socket_connect_timeout=MOST_SECONDS,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
    except ValueError as error:
        raise ConfigError(f"redis_url: {mask(str(error))}") from None


def value(holder: UUID, term: int) -> str:
    return f"{holder}:{term}"


def milliseconds(ttl: timedelta) -> int:
    return ttl // timedelta(milliseconds=1)
