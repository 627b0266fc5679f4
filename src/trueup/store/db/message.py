"""Several statements in one message, and what the server answered to each.

One message is one round trip and one system call each way, however many statements, and even transactions, are in it; psycopg
has a call for each, or its pipeline, which takes more of this process' time than the calls. The statements are executed one
after the other; after one that fails, none that follows is. What was answered before that still counts: a commit that is
followed by something which failed is a commit.

Values become part of the text. On a connection where `keep` was called, statements are kept parsed and planned by the
server, and `EXECUTE` finds their plan: not behind a pooler, where the next transaction may be on a connection that knows
nothing of it.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, cast

import psycopg
from psycopg import AsyncConnection, errors, generators, sql
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import Escaping, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

Fetched = list[tuple[Any, ...]]
Params = Mapping[str, Any]

PLACEHOLDER = re.compile(rb"%\((\w+)\)s|%%")
_BETWEEN = b"\n;\n"  # a statement may end with a comment
_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.NONFATAL_ERROR)

_REPLANNED = "RevalidateCachedQuery"  # where the server finds out that a kept statement would return something else
# Settings that decide how a message is read before anything in it is executed, or how its transaction begins; and whose session it is.
_REPORTED = (
    *(b"client_encoding", b"standard_conforming_strings", b"DateStyle"),
    *(b"default_transaction_read_only", b"session_authorization"),
)
_QUOTED = '"{}"'
_TEXTS = {str, NoneType}
_KEPT_AS = "_trueup_peer"
_PROCESS = secrets.token_hex(4).encode()  # behind a pooler, what one process has failed to remove is met by others

_numbers = itertools.count(1)


@cache
def numbered(query: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The statement with numbers for its parameters, and their names in that order."""
    names = tuple(dict.fromkeys(found[1] for found in PLACEHOLDER.finditer(query) if found[1] is not None))
    numbers = {name: b"$%d" % number for number, name in enumerate(names, 1)}
    text = PLACEHOLDER.sub(lambda found: b"%" if found[1] is None else numbers[found[1]], query)
    return text, tuple(name.decode() for name in names)


class StalePlan(psycopg.OperationalError):
    """What a kept statement returns is of another type since a table was altered, or it was dropped. Sent again, it works."""

    sqlstate = errors.InvalidSqlStatementName.sqlstate  # the server has answered: nothing is uncertain


class Unreadable:
    """Stands for a value that could not be read: a number in JSON with more digits than Python takes, say."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Query(NamedTuple):
    """A statement with values, `%(name)s` in its text."""

    text: bytes
    params: Params


Part = bytes | Query  # one statement

# Statements of ours lock what they change and look after that. With the snapshot of a stricter level, which a role may have as its
# default, one that has waited for a lock would be refused.
BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"


class Answers:
    """One for each statement that was completed, in their order; and the error that ended it, if one did."""

    def __init__(
        self, peer: _Peer, results: Sequence[PGresult], before: int = 0, each: tuple[int, int] = (0, 1)
    ) -> None:
        """`before`: the number of leading statements to leave out of the answers. `each`: of what follows, how many are left
        out and how many are kept, by turns."""
        self._peer = peer
        self.error: psycopg.Error | None = None
        if not results:
            self.error = psycopg.OperationalError("the server has answered nothing")
        elif results[-1].status in _FAILED:
            self.error = peer.error(results[-1])
            results = results[:-1]
        self._results, (out, kept) = results[before:], each
        if out:
            self._results = [result for n, result in enumerate(self._results) if n % (out + kept) >= out]

    def __len__(self) -> int:
        """How many statements were completed."""
        return len(self._results)

    def check(self) -> Answers:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error
        return self

    def rows(self, n: int) -> Fetched:
        """What a statement has returned. A value that Python cannot read is `Unreadable`: one must not cost all others."""
        result, transformer = self._results[n], self._peer.transformer
        transformer.set_pgresult(result)
        try:
            return transformer.load_rows(0, result.ntuples, tuple)
        except Exception:
            return self._peer.one_by_one(result)

    def count(self, n: int) -> int:
        """How many rows a statement has touched."""
        return self._results[n].command_tuples or 0


async def send(connection: AsyncConnection[Any], *parts: Part) -> Answers:
    """Send statements together. An error of the server's is in the answers; a connection that breaks in between raises.

    After an error the connection may be in a transaction that has failed.
    """
    peer = _peer_of(connection)
    before = peer.afresh if connection.info.transaction_status == TransactionStatus.IDLE else ()
    texts = [part if isinstance(part, bytes) else await peer.text(part) for part in parts]
    return Answers(peer, await peer.exchange(_BETWEEN.join([*before, *texts])), len(before))


async def repeat(connection: AsyncConnection[Any], times: int, *parts: Part) -> Answers:
    """Send the same statements a number of times in one message. Calls are parsed and planned once for all of them.

    They are prepared within the message, which a pooler sends to one server process from its beginning to its end.
    """
    peer, prepare, forget, once = _peer_of(connection), [], [], []
    for part in parts:
        if isinstance(part, Query):
            name = b"trueup_%b_%d" % (_PROCESS, next(_numbers))
            prepare.append(b"PREPARE %b AS %b" % (name, peer.filled(_template(part.text), part.params)))
            forget.append(b"DEALLOCATE %b" % name)
            part = b"EXECUTE %b" % name
        once.append(part)
    results = await peer.exchange(_BETWEEN.join([*prepare, *[*peer.afresh, *once] * times, *forget]))
    answers = Answers(peer, results, len(prepare), each=(len(peer.afresh), len(once)))
    if answers.error is not None:
        await roll_back(connection)
        for each in forget:
            await peer.exchange(each)  # whether it is there or not
    return answers


class Conversation:
    """Several messages in one transaction, which the first begins and the last ends."""

    begin, commit = BEGIN, b"COMMIT"

    def __init__(self, connection: AsyncConnection[Any], first: Sequence[bytes] = ()) -> None:
        """`first` goes before the first message's statements, and is not counted among them."""
        self.connection = connection
        self._peer = _peer_of(connection)
        self._first = first
        self._begin: list[bytes] = [self.begin, *self._peer.afresh, *first]

    @property
    def encoding(self) -> str:
        return self._peer.encoding

    def filled(self, query: Query) -> bytes:
        """A statement with its values in it, which the server never keeps prepared."""
        return self._peer.filled(_template(query.text), query.params)

    async def send(self, *parts: Part) -> Answers:
        """Send statements together. Raises what the server or the connection raises."""
        texts = [part if isinstance(part, bytes) else await self._peer.text(part) for part in parts]
        begin, self._begin = self._begin, []
        results = await self._peer.exchange(_BETWEEN.join([*begin, *texts]))
        return Answers(self._peer, results, len(begin)).check()

    async def each_afresh(
        self, steer: bytes, parts: Sequence[Part], end: Sequence[bytes] = (), *first: bytes
    ) -> list[Fetched]:
        """Send statements together that run users' triggers, each with the session put right, and steered, before it. Returns their
        rows. Without an `end`, what follows in this transaction finds the session put right, too."""
        again = [*self._peer.afresh, *self._first]
        texts: list[Part] = [*first]
        for n, part in enumerate(parts):
            texts += [*(again if n else ()), steer, part]
        answers = await self.send(*texts, *(end or again))
        return [answers.rows(len(first) + 1 + n * (len(again) + 2)) for n in range(len(parts))]

    async def end(self, *parts: Part) -> None:
        """Send the last statements, and commit."""
        await self.send(*parts, self.commit)


def array(values: Sequence[object]) -> str:
    """Values as the text of an array, for `%(name)s::text[]`. Many of them are written several times as fast as by psycopg."""
    if set(map(type, values)) == {str}:
        text = '{"' + '","'.join(cast(Sequence[str], values)) + '"}'
        if "\\" not in text and text.count('"') == 2 * len(values):
            return text
    return "{" + ",".join("NULL" if value is None else _QUOTED.format(_escaped(str(value))) for value in values) + "}"


def numbers(values: Iterable[int]) -> str:
    """Whole numbers as the text of an array, for `%(name)s::bigint[]`, several times as fast as by psycopg."""
    return f"{{{','.join(map(str, values))}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"') if "\\" in text or '"' in text else text


def filled(connection: AsyncConnection[Any], query: Query) -> bytes:
    """A statement with its values in it, which the server never keeps prepared."""
    return _peer_of(connection).filled(_template(query.text), query.params)


def keep(connection: AsyncConnection[Any]) -> None:
    """Have the server keep the statements that are sent on this connection.

    Best on one where psycopg prepares nothing: when it drops its statements, above all at a rollback, it makes the server
    deallocate all of them.
    """
    _peer_of(connection).kept = {}


def begin_afresh(connection: AsyncConnection[Any], statements: Sequence[bytes]) -> None:
    """Have these sent before each transaction: they undo what users' triggers and functions have set for the session."""
    peer = _peer_of(connection)
    peer.afresh, peer.reported = statements, peer.reports()


def afresh(connection: AsyncConnection[Any]) -> Sequence[bytes]:
    """What `begin_afresh` was given, for a message that does not begin with its transaction."""
    return _peer_of(connection).afresh


def is_as_opened(connection: AsyncConnection[Any]) -> bool:
    """Whether messages are read and written as when the connection was opened. What the server reports costs no round trip."""
    peer = _peer_of(connection)
    return peer.reported is None or peer.reported == peer.reports()


async def roll_back(connection: AsyncConnection[Any]) -> None:
    """End a transaction that a message has left failed."""
    if connection.info.transaction_status == TransactionStatus.INERROR:
        await connection.rollback()


class _Template:
    """A text with places for values."""

    def __init__(self, text: bytes) -> None:
        self.texts: list[bytes] = []
        self.names: list[str] = []
        start, plain = 0, b""
        for found in PLACEHOLDER.finditer(text):
            plain += text[start : found.start()]
            start = found.end()
            if found[1] is None:
                plain += b"%"
            else:
                self.texts.append(plain)
                self.names.append(found[1].decode())
                plain = b""
        self.texts.append(plain + text[start:])


_template = cache(_Template)


class _Plain:
    """Reads with psycopg's own loaders, four times as fast as ours. What they cannot read is read once more, by those of the connection."""

    adapters = psycopg.adapters

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self.connection = connection


class _Peer:
    """What is known about a connection."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._lock = connection.lock
        self._wait = connection.wait
        self._pgconn = connection.pgconn
        self._escape = Escaping(connection.pgconn).escape_literal
        self.encoding = connection.info.encoding
        self._connection = connection
        self._encoded = connection.pgconn.parameter_status(_REPORTED[0])
        self.transformer = Transformer(_Plain(connection))
        self.kept: dict[bytes, _Template] | None = None
        self.afresh: Sequence[bytes] = ()
        self.reported: Sequence[bytes | None] | None = None

    async def exchange(self, message: bytes) -> Sequence[PGresult]:
        async with self._lock:
            results: Sequence[PGresult] = await self._wait(_exchange(self._pgconn, message))
        self._follow_encoding()
        return results

    def _follow_encoding(self) -> None:
        """A user's statement or trigger may have set another encoding: for what comes after it, in this transaction too."""
        if self._encoded == (now := self._pgconn.parameter_status(_REPORTED[0])):
            return
        self._encoded = now
        self.encoding = self._connection.info.encoding
        self.transformer = Transformer(_Plain(self._connection))

    def one_by_one(self, result: PGresult) -> Fetched:
        """The rows, value by value, by the connection's own loaders."""
        transformer = Transformer(self._connection)
        transformer.set_pgresult(result)
        return [_one_by_one(transformer, result, row) for row in range(result.ntuples)]

    def reports(self) -> Sequence[bytes | None]:
        return [self._pgconn.parameter_status(name) for name in _REPORTED]

    async def text(self, query: Query) -> bytes:
        """The statement with its values, or what calls it, if it is kept; it is kept from now on, if that may be."""
        if self.kept is None:
            return self.filled(_template(query.text), query.params)
        if query.text not in self.kept:
            # In a message of its own: should the other statements fail, it is known whether this one was kept.
            prepare, template = _prepared(query.text)
            Answers(self, await self.exchange(prepare)).check()
            self.kept[query.text] = template
        return self.filled(self.kept[query.text], query.params)

    def filled(self, template: _Template, params: Params) -> bytes:
        self._follow_encoding()
        parts = [template.texts[0]]
        for name, text in zip(template.names, template.texts[1:], strict=True):
            parts.append(self._literal(params[name]))
            parts.append(text)
        return b"".join(parts)

    def error(self, result: PGresult) -> psycopg.Error:
        error = errors.error_from_result(result, encoding=self.encoding)
        if self.kept and (
            (isinstance(error, errors.InvalidSqlStatementName) and not error.diag.context)  # else a function raised it
            or (isinstance(error, errors.FeatureNotSupported) and error.diag.source_function == _REPLANNED)
        ):
            self.kept.clear()  # each is prepared anew, under another name
            return StalePlan(f"{error}; statements are prepared again")
        return error

    def _literal(self, value: Any) -> bytes:
        """As psycopg writes it, and quicker for the kinds that every statement has."""
        if value is None:
            return b"NULL"
        if type(value) is int:
            return b" %d" % value  # two minus signs in a row would begin a comment
        if type(value) is str and "\0" not in value:
            return self._escape(value.encode(self.encoding))
        if type(value) is list and set(map(type, value)) <= _TEXTS and "\0" not in (text := array(value)):
            with suppress(UnicodeEncodeError):  # psycopg's error says where in its value the character is
                return self._escape(text.encode(self.encoding))
        return sql.Literal(value).as_bytes(self.transformer)


def _peer_of(connection: AsyncConnection[Any]) -> _Peer:
    """It is kept with the connection itself, because each knows the other: so they go together."""
    peer: _Peer | None = vars(connection).get(_KEPT_AS)
    if peer is None:
        peer = vars(connection)[_KEPT_AS] = _Peer(connection)
    return peer


def _exchange(pgconn: PGconn, message: bytes) -> PQGen[list[PGresult]]:
    pgconn.send_query(message)
    results: list[PGresult] = yield from generators.execute(pgconn)
    return results


def _one_by_one(transformer: Any, result: PGresult, row: int) -> tuple[Any, ...]:
    values: list[Any] = []
    for column in range(result.nfields):
        value = result.get_value(row, column)
        try:
            loader = transformer.get_loader(result.ftype(column), result.fformat(column))
            values.append(None if value is None else loader.load(value))
        except Exception as error:
            values.append(Unreadable(error))
    return tuple(values)


def _prepared(query: bytes) -> tuple[bytes, _Template]:
    """The statement that has the server keep another one, and the one that calls it."""
    name = b"trueup_%b_%d" % (_PROCESS, next(_numbers))
    text, names = numbered(query)
    values = b", ".join(b"%%(%b)s" % each.encode() for each in names)
    call = b"EXECUTE %b%b" % (name, b" (%b)" % values if values else b"")
    return b"PREPARE %b AS %b" % (name, text), _Template(call)
