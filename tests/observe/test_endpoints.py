from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.ports import number, reserve
from trueup import ConfigError
from trueup.observe.endpoints import MAX_REQUESTS, Endpoints, Served


@pytest.fixture
def port() -> Iterator[int]:
    with reserve() as reserved:
        yield number(reserved)


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


WELL = Served(lambda: None, lambda: None, lambda: ("text/plain", b"trueup_x 1\n"))
ILL = Served(lambda: "the loop stands still", lambda: "it stops")


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/healthz", "GET", 200),
        ("/healthz?verbose=1", "GET", 200),
        ("/healthz", "HEAD", 200),
        ("/readyz", "GET", 200),
        ("/metrics", "GET", 200),
        ("/", "GET", 404),
        ("/healthz/", "GET", 404),
        ("/metrics/../readyz", "GET", 404),
        ("/anything", "GET", 404),
        ("/readyz", "POST", 501),
        ("/metrics", "DELETE", 501),
    ],
)
def test_three_paths_are_answered_and_no_other(port: int, path: str, method: str, status: int) -> None:
    endpoints = Endpoints("127.0.0.1", port, WELL, "health")
    try:
        assert ask(port, path, method)[0] == status
    finally:
        endpoints.close()


def test_what_is_wrong_is_503_with_the_reason_until_all_who_share_the_port_are_well(port: int) -> None:
    well = Endpoints("127.0.0.1", port, WELL, "health")
    ill = Endpoints("127.0.0.1", port, ILL, "health")
    for path, name, why in (("/healthz", "alive", "the loop stands still"), ("/readyz", "ready", "it stops")):
        status, body = ask(port, path)
        assert (status, json.loads(body)) == (503, {name: False, "why": [why]})
    assert ask(port, "/metrics") == (200, "trueup_x 1\n")
    ill.close()
    assert ask(port, "/readyz") == (200, '{"ready": true, "why": []}\n')
    well.close()
    well.close()
    with pytest.raises(ConnectionRefusedError):
        ask(port, "/readyz")
    assert not [thread for thread in threading.enumerate() if thread.name == "trueup endpoints"]


def test_a_port_for_metrics_has_no_probes_and_says_which_package_is_missing(port: int) -> None:
    metrics = Endpoints("127.0.0.1", port, Served(scrape=WELL.scrape), "metrics")
    assert (ask(port, "/metrics")[0], ask(port, "/healthz")[0], ask(port, "/readyz")[0]) == (200, 404, 404)
    metrics.close()
    health = Endpoints("127.0.0.1", port, ILL, "health")
    assert ask(port, "/metrics") == (404, 'metrics need prometheus-client: pip install "trueup[metrics]"\n')
    health.close()


def test_a_port_that_is_taken_is_named_with_the_setting(port: int) -> None:
    with reserve() as taken:
        taken.listen()
        with pytest.raises(ConfigError, match=r"health cannot be served at .*change health_port or health_host"):
            Endpoints("127.0.0.1", number(taken), WELL, "health")


def test_clients_that_say_nothing_do_not_keep_probes_from_being_answered(port: int) -> None:
    endpoints = Endpoints("127.0.0.1", port, WELL, "health")
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_REQUESTS // 2)]
    try:
        assert ask(port, "/healthz")[0] == 200
        assert threading.active_count() < 2 * MAX_REQUESTS
    finally:
        for each in silent:
            each.close()
        endpoints.close()
