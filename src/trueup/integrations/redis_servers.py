"""Sends a command to all Redis servers at once, with one deadline for all.

Each server is asked by a thread of its own, one question after the other, so that a server never sees a release before the claim
that it takes back. redis-py's timeouts are for single reads: a server that sends a byte now and then would keep its caller for as
long as it likes. So no call waits for a thread beyond the deadline, and its connection is closed to free it.

The reasons for which a server gives no answer are kept apart: it is away (no answer at all), or it refuses (wrong password, no
permission, read only, out of memory, still loading). A refusal is an answer: the server is there, and may well have given the lease to another.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from trueup.clock import elapsed
from trueup.errors import ConfigError
from trueup.texts import describe

try:
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import TimeoutError as RedisTimeoutError
    from redis.retry import Retry
except ImportError as error:  # pragma: no cover - the tests have it
    raise ConfigError('leases in Redis need the redis package: pip install "trueup[redis]"') from error

MAX_SECONDS = 1.0  # for connecting and answering, for all servers together; a busy machine may need half of it

Question = Callable[[Any], Any]  # a call on a client that returns a number or a text
TOO_MANY_CLIENTS = "max number of clients reached"  # redis-py raises this refusal as a lost connection


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no answer. `away`: nothing came back at all."""

    text: str
    away: bool


Answer = int | str | None | Fault


class ServerAnswers(NamedTuple):
    """The servers' answers. Servers that were not awaited, because the others decided, are in neither part."""

    given: tuple[int | str | None, ...]
    faults: tuple[Fault, ...]

    @property
    def reasons(self) -> str:
        return "; ".join(dict.fromkeys(fault.text for fault in self.faults))


@dataclass(frozen=True, slots=True)
class Asked:
    question: Question
    deadline: float
    answer: Callable[[Answer], None]
    late: bool  # whether to run it after its deadline, too


class RedisServer:
    """One server. `ask`, `interrupt` and `close` return at once."""

    def __init__(self, url: str) -> None:
        self._client = connect(url)
        self._asked: SimpleQueue[Asked | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = False

    def ask(self, asked: Asked) -> None:
        self._asked.put(asked)
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer, name="trueup redis", daemon=True)
            self._thread.start()

    def interrupt(self) -> None:
        """Free the thread from a server that does not finish its answer."""
        self._client.connection_pool.disconnect()

    def close(self) -> None:
        """Close after the earlier calls have run."""
        self._asked.put(None)
        if self._thread is None:
            self._client.close()
        elif self._busy:
            patience = threading.Timer(MAX_SECONDS, self.interrupt)
            patience.daemon = True
            patience.start()

    def _answer(self) -> None:
        while (asked := self._asked.get()) is not None:
            if elapsed() > asked.deadline and not asked.late:
                asked.answer(Fault("it is still busy with an earlier request", away=True))
                continue
            self._busy = True
            try:
                answer: Answer = asked.question(self._client)
            except Exception as error:  # any error of one server is its answer
                answer = Fault(describe(error) or type(error).__name__, is_away(error))
            self._busy = False
            asked.answer(answer)
        self._client.close()


def ask(
    servers: Sequence[RedisServer],
    question: Question,
    *,
    enough: Callable[[Sequence[Answer]], bool] = lambda answers: False,
    late: bool = False,
) -> ServerAnswers:
    """Send to all servers at once; return when all have answered, `enough` have, or the time is over."""
    deadline = elapsed() + MAX_SECONDS
    queue: SimpleQueue[tuple[int, Answer]] = SimpleQueue()
    for number, server in enumerate(servers):
        server.ask(Asked(question, deadline, partial(_put, queue, number), late))
    answers: dict[int, Answer] = {}
    while len(answers) < len(servers) and not enough(list(answers.values())):
        try:
            number, answer = queue.get(timeout=max(0.0, deadline - elapsed()))
        except Empty:
            for number in set(range(len(servers))) - set(answers):
                servers[number].interrupt()
                answers[number] = Fault(f"no answer within {MAX_SECONDS:g} s", away=True)
            break
        answers[number] = answer
    faults = tuple(answer for answer in answers.values() if isinstance(answer, Fault))
    return ServerAnswers(tuple(answer for answer in answers.values() if not isinstance(answer, Fault)), faults)


def _put(queue: SimpleQueue[tuple[int, Answer]], number: int, answer: Answer) -> None:
    queue.put((number, answer))


def is_away(error: BaseException) -> bool:
    """Whether the server gave no answer at all. A certificate that does not match is a refusal, by us."""
    if isinstance(error, ssl.SSLError) or any(isinstance(each, ssl.SSLError) for each in _causes(error)):
        return False
    if type(error) in (RedisConnectionError, RedisTimeoutError):  # their subclasses are answers
        return getattr(error, "status_code", None) is None and TOO_MANY_CLIENTS not in str(error)
    return isinstance(error, OSError)


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    following = error.__cause__ or error.__context__
    while following is not None and len(causes) < 10:
        causes.append(following)
        following = following.__cause__ or following.__context__
    return causes


def connect(url: str) -> Redis:
    """A client that connects when it is first used, and that gives up soon: a renewal that waits is a renewal missed."""
    try:
        return Redis.from_url(
            url,
            socket_timeout=MAX_SECONDS,
            socket_connect_timeout=MAX_SECONDS,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
    except ValueError as error:
        raise ConfigError(f"redis_url: {describe(error)}") from None
