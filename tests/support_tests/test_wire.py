from __future__ import annotations

import pytest

from tests.support.wire import PARSE, QUERY, READY_FOR_QUERY, SYNC, Conversation, Frames, Message


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


def startup(code: int, body: bytes = b"") -> bytes:
    return message(b"", code.to_bytes(4) + body)


LOGIN = startup(3 << 16, b"user\0postgres\0\0")
SSL_REQUEST = startup(80877103)
READY = message(READY_FOR_QUERY, b"I")


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_messages_are_found_however_the_bytes_are_cut(piece: int) -> None:
    stream = LOGIN + message(QUERY, b"select 1\0") + message(SYNC)
    frames = Frames(startup=True)
    found = [each for at in range(0, len(stream), piece) for each in frames.feed(stream[at : at + piece])]
    assert found == [Message(b"", LOGIN[4:]), Message(QUERY, b"select 1\0"), Message(SYNC, b"")]


def test_a_stream_that_is_not_postgresql_gives_nothing_and_is_not_collected() -> None:
    frames = Frames(startup=True)
    assert frames.feed(b"*1\r\n$4\r\nPING\r\n") == []
    assert not frames.readable
    assert frames.feed(LOGIN) == []


def test_a_simple_query_is_a_round_of_its_own() -> None:
    conversation = Conversation()
    conversation.client_sent(LOGIN)
    conversation.server_sent(READY)
    assert [number for _, number in conversation.client_sent(message(QUERY) + message(QUERY))] == [1, 2]
    conversation.server_sent(READY)
    assert conversation.answered == 1


def test_extended_messages_belong_to_the_round_of_their_sync() -> None:
    conversation = Conversation()
    conversation.client_sent(LOGIN)
    sent = conversation.client_sent(message(PARSE) + message(SYNC) + message(PARSE) + message(SYNC))
    assert [number for _, number in sent] == [1, 1, 2, 2]


def test_the_answer_to_an_encryption_request_is_no_message() -> None:
    conversation = Conversation()
    conversation.client_sent(SSL_REQUEST)
    conversation.server_sent(b"N")
    conversation.client_sent(LOGIN)
    conversation.server_sent(READY)
    assert conversation.answered == 0
