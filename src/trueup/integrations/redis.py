"""Leases in Redis or Valkey: on one server, or on a majority of several.

Redis only makes it unlikely that two work at once. It forgets: a server restarted without persistence, a flush, a failover
to a replica that lags, a clock that jumps, and the next one gets the lease while the first still works. So every holder's
term comes from PostgreSQL, and `lease.fence(tx)` inside the holder's transaction refuses every term but the newest. That,
and not Redis, is what makes a write safe.

Taking it is done in this order, and each step has its reason:

1. A claim: the key becomes `holder`, if it is free. Before the term is made, because making one ends the fence of the holder
   before us: a failed attempt must not do that.
2. The term, from PostgreSQL.
3. The value becomes `holder:term`, if the key is still ours: PostgreSQL may have been slow. From here on renewing and giving
   back compare the whole value, in one script each, so neither can touch what belongs to a later holder.

So a key says whether the lease is held (`holder:term`, or whatever other programs write) or is still trying (`holder`). Only
the first is "held elsewhere". Everything that is not known is unknown, with its reason: servers that do not answer or refuse,
answers that come too late, claims that met on different servers. Claims that met are tried again after a random pause.

When Redis cannot be reached no process gets the lease (`unavailable="closed"`), and its holder is notified when its time is over.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from trueup.clock import elapsed
from trueup.errors import ConfigError, NotAcquired
from trueup.events import Events, LeaseGrantedOpenly
from trueup.integrations.redis_servers import Answer, Fault, Question, RedisServer, ask, connect
from trueup.store.leases import Terms

__all__ = ["RedisLeases", "RedisQuorum", "Unavailable", "connect", "leases"]

Unavailable = Literal["closed", "open"]

DRIFT = 0.01  # how much faster a server's clock may run than ours, as a share of the ttl
MIN_DRIFT = 0.002  # seconds; Redis expires keys by whole milliseconds
SPLIT_FOR = 2.0  # seconds during which colliding claims are tried again
SPLIT_PAUSE = 0.02  # seconds before the first retry; each is up to twice as long as the one before

HELD, TAKEN, CLAIMED = 0, 1, 2

# A holder whose first try was not answered finds its own claim, and takes it. A value of 36 characters is a holder without a
# term: a claim. Our keys always expire. A key that has lost its expiry (PERSIST, a RESTORE) gets it again: its holder may be
# gone.
CLAIM = """
local value = redis.call('get', KEYS[1])
if value and value ~= ARGV[1] then
  local ours = not string.find(string.sub(value, 1, 36), '[^0-9a-f-]') and string.find(string.sub(value, 37), '^:?%d*$')
  if ours and #value >= 36 and redis.pcall('pttl', KEYS[1]) == -1 then redis.pcall('pexpire', KEYS[1], ARGV[2]) end
  if #value == 36 and not string.find(value, '[^0-9a-f-]') then return 2 end
  return 0
end
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
# Old and new value are the same for a renewal; they differ once, when the term has been made.
EXTEND = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
RELEASE = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('del', KEYS[1])
"""

_independent: set[tuple[str, ...]] = set()  # quorums that this process has found to be independent servers


class Votes(NamedTuple):
    """The answers of the servers. `claimed`: by a process that does not hold the lease yet."""

    yes: int
    held: int
    claimed: int
    faults: tuple[Fault, ...]
    reasons: str

    @property
    def answered(self) -> int:
        return self.yes + self.held + self.claimed

    @property
    def away(self) -> bool:
        return bool(self.faults) and all(fault.away for fault in self.faults)


class Unknown(NotAcquired):
    """It is unknown whether the lease is held. `away`: no server that matters answered."""

    def __init__(self, name: str, reason: str, *, away: bool = False) -> None:
        super().__init__(name, reason, unreachable=True)
        self.away = away


class Unanswered(ConnectionError):
    """A renewal or a release that a majority did not answer."""

    def __init__(self, reason: str, *, away: bool) -> None:
        super().__init__(reason)
        self.away = away


class RedisQuorum:
    """A lease on the majority of several independent servers (Redlock): one of three, or two of five, may be down.

    Limits: the servers must not be replicas of one another. One that restarts without what it knew may vote twice, so keep
    it away for the longest ttl, or persist every write. A holder that loses the majority is notified; a server that comes
    back empty does not get its key again until the lease is taken anew.
    """

    def __init__(self, urls: Sequence[str], terms: Terms, schema: str, key: str | None = None) -> None:
        if len(urls) < 3 or len({_place(url) for url in urls}) < len(urls):
            raise ConfigError(
                "a quorum needs three or more different Redis servers, not databases of one; an even number adds no safety"
            )
        self._urls = tuple(urls)
        self._servers = [RedisServer(url) for url in urls]
        self._terms = terms
        self._schema = schema
        self._own_key = key

    @property
    def majority(self) -> int:
        return len(self._servers) // 2 + 1

    def acquire(self, name: str, holder: UUID, ttl: timedelta) -> int | None:
        self._check_independent()
        claim, pause, give_up = str(holder), SPLIT_PAUSE, elapsed() + SPLIT_FOR
        while True:
            began = elapsed()
            votes = self._ask(lambda server: server.eval(CLAIM, 1, self._key(name), claim, milliseconds(ttl)))
            if votes.yes >= self.majority:
                return self._seal(name, holder, claim, ttl, began)
            if votes.held + votes.claimed < len(self._servers):  # a server that did not answer may have accepted it
                self._release(name, claim, wait_for=votes.answered)
            if votes.held >= self.majority:
                return None
            self._raise_unless_answered(name, votes)
            if elapsed() + pause > give_up:
                raise Unknown(name, self._split(votes))
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
            pause *= 2

    def _seal(self, name: str, holder: UUID, claim: str, ttl: timedelta, began: float) -> int:
        mine = claim
        try:
            if self._in_time(began, ttl):
                term = self._terms.mint(self.fence_name(name), holder)
                mine = value(holder, term)
                votes = self._swap(name, claim, mine, ttl)
                if votes.yes >= self.majority and self._in_time(began, ttl):
                    mine = ""
                    return term
                self._raise_unless_answered(name, votes)
            raise Unknown(name, "acquiring it took longer than its ttl, so the claim may have expired")
        finally:
            for kept in {claim, mine} if mine else ():
                self._release(name, kept)

    def renew(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        mine = value(holder, term)
        votes = self._swap(name, mine, mine, ttl)
        if votes.yes >= self.majority:
            return True
        if votes.yes + len(votes.faults) < self.majority:
            return False
        raise Unanswered(self._unreachable(votes), away=votes.away)

    def release(self, name: str, holder: UUID, term: int) -> None:
        votes = self._release(name, value(holder, term))
        self._terms.forget_holder(self.fence_name(name), holder, term)
        if len(votes.faults) > len(self._servers) - self.majority:
            raise Unanswered(self._unreachable(votes), away=votes.away)

    def renew_every(self, ttl: timedelta) -> float:
        return ttl.total_seconds() / 3

    def fence_name(self, name: str) -> str:
        # Names contain no such sign: a key is never taken for the name of another lease.
        return f"redis:{name}" if self._own_key is None else f"redis:={self._own_key}"

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def _key(self, name: str) -> str:
        # Two schemas are two installations: their leases of the same name are different, unless a key is named.
        return f"{self._schema}:lease:{name}" if self._own_key is None else self._own_key

    def _swap(self, name: str, old: str, new: str, ttl: timedelta) -> Votes:
        return self._ask(lambda server: server.eval(EXTEND, 1, self._key(name), old, new, milliseconds(ttl)))

    def _release(self, name: str, mine: str, wait_for: int | None = None) -> Votes:
        """Release on all servers, also those that did not answer before; wait for `wait_for` of them, or for all."""
        enough = len(self._servers) if wait_for is None else wait_for
        return self._ask(lambda server: server.eval(RELEASE, 1, self._key(name), mine), wait_for=enough)

    def _ask(self, question: Question, *, wait_for: int | None = None) -> Votes:
        """Once a majority agrees or reports the lease as held, the others are not awaited: a frozen minority costs no time."""

        def decided(answers: Sequence[Answer]) -> bool:
            if wait_for is not None:
                return len(answers) >= wait_for
            return max(answers.count(TAKEN), answers.count(HELD)) >= self.majority

        answers = ask(self._servers, question, enough=decided, late=wait_for is not None)
        yes, held, claimed = (answers.given.count(each) for each in (TAKEN, HELD, CLAIMED))
        return Votes(yes, held, claimed, answers.faults, answers.reasons)

    def _raise_unless_answered(self, name: str, votes: Votes) -> None:
        if len(votes.faults) > len(self._servers) - self.majority:
            raise Unknown(name, self._unreachable(votes), away=votes.away)

    def _check_independent(self) -> None:
        """Raises ConfigError when two addresses lead to one server. One that may not be asked for its id counts as another."""
        if self._urls in _independent:
            return
        answers = ask(self._servers, lambda server: str(server.info("server")["run_id"]))
        if len(set(answers.given)) < len(answers.given):
            raise ConfigError(
                "redis_url: two of the addresses are the same Redis server, which would have two votes; a quorum needs "
                "three or more different servers"
            )
        if not any(fault.away for fault in answers.faults):
            _independent.add(self._urls)

    def _in_time(self, began: float, ttl: timedelta) -> bool:
        """Whether the first key that was set certainly still exists."""
        lasts = ttl.total_seconds()
        return elapsed() - began < lasts - (lasts * DRIFT + MIN_DRIFT)

    def _split(self, votes: Votes) -> str:
        return (
            f"no majority: {votes.yes} of {len(self._servers)} Redis servers were free, on {votes.held} it is held, on "
            f"{votes.claimed} others are trying" + (f", and of others: {votes.reasons}" if votes.faults else "")
        )

    def _unreachable(self, votes: Votes) -> str:
        answered = len(self._servers) - len(votes.faults)
        return f"{answered} of {len(self._servers)} Redis servers answered: {votes.reasons}"


class RedisLeases(RedisQuorum):
    """A lease on one server.

    With `unavailable="open"` every process that asks while Redis is away still gets the lease, and keeps it until Redis is back
    and knows of another holder; each time that is an event. A server that answers with a refusal (wrong password, no permission,
    read only, out of memory) is not away. Terms are made as usual, so of the holders that fence their transactions only the
    newest can write. For work that may run twice but must run.
    """

    def __init__(
        self,
        url: str,
        terms: Terms,
        schema: str,
        unavailable: Unavailable = "closed",
        key: str | None = None,
        events: Events | None = None,
    ) -> None:
        self._urls = (url,)
        self._servers = [RedisServer(url)]
        self._terms = terms
        self._schema = schema
        self._own_key = key
        self._unavailable = unavailable
        self._events = events or Events()
        self._opened = False

    def acquire(self, name: str, holder: UUID, ttl: timedelta) -> int | None:
        try:
            return super().acquire(name, holder, ttl)
        except Unknown as unknown:
            if self._unavailable == "closed" or not unknown.away:
                raise
            term = self._terms.mint(self.fence_name(name), holder)
            self._open(name, holder, term, unknown.reason)
            return term

    def renew(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        try:
            if super().renew(name, holder, term, ttl):
                self._opened = False
                return True
            return self._opened and self._enter(name, holder, term, ttl)
        except Unanswered as unanswered:
            if self._unavailable == "closed" or not unanswered.away:
                raise
            self._open(name, holder, term, str(unanswered))
            return True

    def _open(self, name: str, holder: UUID, term: int, reason: str) -> None:
        if not self._opened:
            self._opened = True
            self._events.emit(LeaseGrantedOpenly(name, term, str(holder), reason))

    def _enter(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        """Redis is back: register the holder of the lease there, unless Redis knows another one."""
        mine = value(holder, term)
        votes = self._ask(lambda server: server.eval(CLAIM, 1, self._key(name), mine, milliseconds(ttl)))
        if votes.faults:
            raise Unanswered(self._unreachable(votes), away=votes.away)
        self._opened = False
        return votes.yes > 0

    def _check_independent(self) -> None:
        """One server is."""

    def _split(self, votes: Votes) -> str:
        return "another claim on it was made and has not been completed"

    def _unreachable(self, votes: Votes) -> str:
        return f"Redis {'is unreachable' if votes.away else 'refused'}: {votes.reasons}"


def leases(
    urls: Sequence[str],
    terms: Terms,
    schema: str,
    unavailable: Unavailable,
    key: str | None = None,
    events: Events | None = None,
) -> RedisQuorum:
    """The backend for `redis_url` and `redis_unavailable`, under schema and name, or under a `key` that other programs share. A
    quorum cannot be "open".
    """
    if len(urls) == 1:
        return RedisLeases(urls[0], terms, schema, unavailable, key, events)
    if unavailable == "open":
        raise ConfigError("redis_unavailable='open' is for one server; with several, a majority decides")
    return RedisQuorum(urls, terms, schema, key)


def _place(url: str) -> tuple[Any, ...]:
    """The address in a URL, without user and database."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return ("unix", parts.path)
    try:
        return (parts.hostname, parts.port or 6379)
    except ValueError:  # connecting reports what is wrong with it
        return (url,)


def value(holder: UUID, term: int) -> str:
    return f"{holder}:{term}"


def milliseconds(ttl: timedelta) -> int:
    return ttl // timedelta(milliseconds=1)
