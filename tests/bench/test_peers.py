from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from bench.peers import install, measure
from bench.peers.contestants import GRAPHILE, OURS, PGQUEUER, TRUEUP, Contestant
from bench.peers.goals import verdicts
from bench.peers.install import CannotInstall
from bench.peers.measure import Cost, Entry, Figures
from bench.peers.process import WentWrong
from tests.support.database import TestServer


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def says(*lines: dict[str, object]) -> Contestant:
    """A contestant of which only the lines are real."""
    program = "import json, sys\nfor line in json.loads(sys.argv[1]):\n  print(json.dumps(line), flush=True)"
    return Contestant("Boaster", "1.0", lambda: (sys.executable, "-c", program, json.dumps(lines)), "trueup.jobs")


A_PEERS = Cost(20, 25, {"row versions": 400, "index entries": 300})


def reached(drain: float, bulk: float, one_by_one: float, pick_up: float, idle: float, cost: Cost = A_PEERS) -> Figures:
    return Figures(
        1000, [drain], [cost], [bulk], [one_by_one], [one_by_one * 6], [[pick_up] * 100], [[pick_up * 10]], idle
    )


def test_a_goal_is_met_by_the_ratio_of_the_medians_and_missed_just_below_it() -> None:
    peers = {
        GRAPHILE: reached(10_000, 1, 1, 3.0, 0.5),
        PGQUEUER: reached(4_000, 10_000, 1_000, 2.0, 0.5),
    }
    good = reached(13_000, 25_000, 1_200, 2.0, 0.9, Cost(18, 22.5, {"row versions": 600, "index entries": 300}))
    bad = reached(11_199, 24_999, 1_199, 6.1, 1.1, Cost(18, 22.6, {"row versions": 601, "index entries": 300}))

    told = {(one.who, one.goal): (round(one.reached, 4), one.met) for one in verdicts({TRUEUP: good, **peers})}

    assert told[TRUEUP, "drain ≥ 1.3 × graphile-worker"] == (1.3, True)
    assert told[TRUEUP, "drain ≥ 2.8 × PgQueuer"] == (3.25, True)
    assert told[TRUEUP, "bulk enqueue ≥ 2.5 × PgQueuer"] == (2.5, True)
    assert told[TRUEUP, "CPU per job ≤ 0.9 × graphile-worker"] == (0.9, True)
    assert told[TRUEUP, "WAL per job ≤ 900 B"] == (900, True)
    assert told[TRUEUP, "one-by-one enqueue ≥ 1.2 × PgQueuer"] == (1.2, True)
    assert told[TRUEUP, "pick-up p50 ≤ 1 × PgQueuer"] == (1.0, True)
    assert told[TRUEUP, "urgent p50 ≤ 1 × PgQueuer"] == (1.0, True)
    assert told[TRUEUP, "idle ≤ 1 statement/s"] == (0.9, True)
    missed = list(verdicts({TRUEUP: bad, **peers}))
    assert len(missed) == len(told)
    assert not any(one.met for one in missed)


def test_a_peer_that_cannot_be_installed_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(install, "CACHE", tmp_path)

    with pytest.raises(CannotInstall, match=r"^somebody could not be installed:\n.*no requirement"):
        install.python("somebody", "no requirement, but a sentence")

    assert not (tmp_path / "somebody.installed").exists()


def test_a_contestant_that_did_not_run_each_job_once_has_no_figure(
    database_url: str, server: TestServer, connection: psycopg.Connection
) -> None:
    boaster = says({"starting": True}, {"all_ran": True}, {"ran": 100, "different": 99})
    entry = Entry(boaster, database_url, server.cluster, connection, Figures())

    with pytest.raises(WentWrong, match=r"Boaster, jobs run: .*99.* instead of .*100"):
        measure.drain(entry, 100)

    assert entry.figures.drain == []


def test_a_contestant_that_enqueued_less_than_it_says_has_no_figure(
    database_url: str, server: TestServer, connection: psycopg.Connection
) -> None:
    entry = Entry(says({"seconds": 0.001}), database_url, server.cluster, connection, Figures())

    with pytest.raises(WentWrong, match="Boaster, jobs enqueued: 0 instead of 100"):
        measure.bulk(entry, 100)

    assert entry.figures.bulk == []


def test_a_contestant_that_fails_is_quoted(
    database_url: str, server: TestServer, connection: psycopg.Connection
) -> None:
    failing = Contestant("Fragile", "1.0", lambda: (sys.executable, "-c", "raise SystemExit('no such table')"), "x")

    with pytest.raises(WentWrong, match=r"Fragile ended with status 1: no such table"):
        measure.pick_up(Entry(failing, database_url, server.cluster, connection, Figures()), 100)


@pytest.mark.slow
def test_trueup_enqueues_and_drains_as_its_peers_do(empty_database_url: str, server: TestServer) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        entry = Entry(OURS[0], empty_database_url, server.cluster, connection, Figures())
        with entry.process("set up", 0) as process:
            process.finished()
        measure.bulk(entry, 100)
        measure.drain(entry, 100)
        measure.urgent(entry, 2_000)
    assert entry.figures.bulk[0] > 0
    assert entry.figures.drain[0] > 0
    records = entry.figures.costs().records
    assert all(records[about] > 20 for about in ("row versions", "deletions", "row locks", "index entries")), records
    assert entry.figures.urgent_latency(0.5) > 0


@pytest.mark.slow
@pytest.mark.proof(beside="test_trueup_enqueues_and_drains_as_its_peers_do")
def test_trueup_runs_on_the_stage_that_its_peers_run_on() -> None:
    from bench.server import server

    with server() as cluster:
        figures = measure.measure(cluster, OURS[:1], jobs=100, rounds=1, idle_for=6, say=lambda text: None)[TRUEUP]

    assert figures.drain[0] > 0
    assert figures.bulk[0] > 0
    assert figures.one_by_one[0] > 0
    assert figures.by_callers[0] > 0
    assert len(figures.pick_up[0]) == 100
    assert 0 < figures.idle < 10
