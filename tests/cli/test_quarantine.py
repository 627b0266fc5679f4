from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Cli
from tests.cli.rows import PAPERS, TABLES, Query


@pytest.fixture(autouse=True)
def query(project: Path, database_url: str) -> Query:
    (project / "shop.py").write_text(PAPERS)

    def query(text: str, *params: object) -> object:
        with psycopg.connect(database_url, autocommit=True) as connection:
            cursor = connection.execute(text.encode(), params)
            return cursor.fetchall() if cursor.description else None

    query(TABLES)
    return query


@pytest.fixture
def quarantined(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Rows of two reconcilers in quarantine, and commands that have only the database to go by."""
    cli("reconcilers", "run", "recover")
    cli("reconcilers", "run", "pair")
    monkeypatch.delenv("TRUEUP_APP")
    return cli


def keys(cli: Cli, name: str) -> list[str]:
    return [row["key"] for row in cli("reconcilers", "quarantine", "list", name, "--json").json]


def test_a_key_below_zero_is_no_option_and_the_error_says_where_it_goes(cli: Cli) -> None:
    for command in (("quarantine", "release"), ("quarantine", "discard"), ("quarantine", "show")):
        result = cli("reconcilers", *command, "recover", "-12")
        assert result.code == 2
        assert "after two dashes: trueup reconcilers" in result.err
        assert "two dashes" not in cli("reconcilers", *command, "recover", "--", "-12").err


def test_an_empty_quarantine_says_so(cli: Cli) -> None:
    assert cli("reconcilers", "quarantine", "list").out == "no row is in quarantine\n"
    assert cli("reconcilers", "quarantine", "list", "--discarded").out == "no row was discarded\n"
    assert cli("reconcilers", "quarantine", "list", "--json").json == []
    assert (
        cli("reconcilers", "quarantine", "release", "recover", "--all", "--yes").out
        == "no row of recover is in quarantine\n"
    )


def test_rows_are_listed_with_why_and_nothing_that_a_terminal_would_act_on(quarantined: Cli) -> None:
    result = quarantined("reconcilers", "quarantine", "list")
    assert (result.code, result.err) == (0, "")
    assert len(result.out.splitlines()) == 6
    assert "\x1b" not in result.out
    (line,) = [line for line in result.out.splitlines() if line.startswith("recover")]
    assert line.split()[:4] == ["recover", "7", "uploading", "1"]
    assert line.endswith(r"no \x1b[31msuch\nobject")
    assert quarantined("reconcilers", "quarantine", "list", "recover").out.count("\n") == 2


def test_a_list_that_is_cut_says_so(quarantined: Cli) -> None:
    result = quarantined("reconcilers", "quarantine", "list", "pair", "--limit", "3")
    assert len(result.out.splitlines()) == 4
    assert result.err == "there are more; the latest 3 are shown (--limit)\n"


def test_a_row_is_shown_with_every_error_and_its_traceback(quarantined: Cli) -> None:
    result = quarantined("reconcilers", "quarantine", "show", "recover", "7")
    assert result.code == 0
    assert "reason     no \\x1b[31msuch\\nobject\n" in result.out
    assert "Traceback (most recent call last):" in result.out
    assert 'raise GiveUp("no' in result.out
    assert "\x1b" not in result.out
    document = quarantined("reconcilers", "quarantine", "show", "recover", "7", "--json").json
    assert (document["was_state"], len(document["errors"])) == ("uploading", 1)


def test_a_row_that_is_not_in_quarantine_is_not_shown_and_why_is_said(quarantined: Cli) -> None:
    missing = quarantined("reconcilers", "quarantine", "show", "recover", "99")
    assert (missing.code, "it has no record of such a row" in missing.err) == (1, True)
    resting = quarantined("reconcilers", "quarantine", "show", "recover", "5")
    assert (resting.code, "that row is resting" in resting.err) == (1, True)


def test_rows_are_released_by_key_and_others_are_named(quarantined: Cli, query: Query) -> None:
    result = quarantined("reconcilers", "quarantine", "release", "recover", "7", "7", "8")
    assert (result.code, result.out) == (1, "released 1 row of recover\n")
    assert result.err == "unchanged 8: neither in quarantine nor discarded\n"
    assert query("select state, attempt from trueup.rows where key = '7'") == [("resting", 0)]


def test_keys_of_several_columns_go_both_ways(quarantined: Cli) -> None:
    listed = keys(quarantined, "pair")
    assert '["b", "2"]' in listed
    document = quarantined("reconcilers", "quarantine", "discard", "pair", '["b",2]', "--json").json
    assert document == {"reconciler": "pair", "discarded": ['["b",2]'], "unchanged": []}
    rest = [key for key in listed if key != '["b", "2"]']
    assert quarantined("reconcilers", "quarantine", "release", "pair", *rest).out == "released 3 rows of pair\n"
    assert [row["key"] for row in quarantined("reconcilers", "quarantine", "list", "--discarded", "--json").json] == [
        '["b", "2"]'
    ]


def test_all_rows_of_a_reconciler_are_freed(quarantined: Cli) -> None:
    assert (
        quarantined("reconcilers", "quarantine", "discard", "pair", "--all", "--yes").out
        == "discarded 4 rows of pair\n"
    )
    assert quarantined("reconcilers", "quarantine", "release", "recover", "--all", "--yes", "--json").json == {
        "reconciler": "recover",
        "released": 1,
    }
    assert quarantined("reconcilers", "quarantine", "list", "--json").json == []


@pytest.mark.parametrize(
    "command", ["quarantine release pair --all", "quarantine discard pair --all", "discard pair --all", "forget pair"]
)
def test_without_a_terminal_nothing_is_done_to_many_rows_unless_yes_is_given(quarantined: Cli, command: str) -> None:
    before = keys(quarantined, "pair")
    result = quarantined("reconcilers", *command.split())
    assert (result.code, "give --yes" in result.err) == (2, True)
    assert keys(quarantined, "pair") == before != []


def test_the_short_ways_do_the_same(quarantined: Cli) -> None:
    assert quarantined("reconcilers", "release", "recover", "7").out == "released 1 row of recover\n"
    assert quarantined("reconcilers", "discard", "pair", "--all", "--yes").out == "discarded 4 rows of pair\n"


def test_keys_or_all_are_needed_and_not_both(quarantined: Cli) -> None:
    for arguments in ((), ("7", "--all")):
        result = quarantined("reconcilers", "quarantine", "release", "recover", *arguments)
        assert (result.code, result.err) == (2, "error: give keys of rows, or --all\n")


def test_a_name_that_is_none_is_not_found(quarantined: Cli) -> None:
    for arguments in (
        ("list", "recove"),
        ("show", "recove", "7"),
        ("release", "recove", "7"),
        ("discard", "recove", "--all"),
    ):
        result = quarantined("reconcilers", "quarantine", *arguments)
        assert (result.code, "did you mean 'recover'?" in result.err) == (1, True), arguments
