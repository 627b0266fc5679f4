"""`trueup actions`: what people did, from the command line above all."""

from __future__ import annotations

import getpass

from tests.cli.conftest import Cli


def test_commands_are_recorded_with_the_user_and_found_again(cli: Cli) -> None:
    job: int = cli("jobs", "enqueue", "add", "[1]", "--json").json["id"]
    cli("jobs", "cancel", str(job), "--reason", "no use")
    cli("queues", "pause", "mail", "--reason", "the provider is down")
    paused, cancelled = cli("actions", "--json").json
    assert (paused["actor"], paused["via"], paused["what"], paused["name"]) == (
        getpass.getuser(),
        "cli",
        "queue",
        "mail",
    )
    assert (cancelled["action"], cancelled["keys"], cancelled["detail"]) == ("cancel", [str(job)], "no use")
    assert [each["id"] for each in cli("actions", "--json", "--job", str(job)).json] == [cancelled["id"]]
    header, row = cli("actions", "--what", "queue").out.splitlines()
    assert header.split()[:5] == ["WHEN", "WHO", "FROM", "ACTION", "ON"]
    assert "queue mail" in row
    assert row.endswith("the provider is down")
    assert "no recorded action matches" in (empty := cli("actions", "--who", "no-such-person")).out + empty.err
    assert "--after" in cli("actions", "--limit", "1").err


def test_a_command_on_all_jobs_is_one_action(cli: Cli) -> None:
    for _ in range(3):
        cli("jobs", "enqueue", "send", '["ann"]')
    assert cli("queues", "pause", "mail").code == 0
    assert cli("queues", "resume", "mail").code == 0
    assert [each["action"] for each in cli("actions", "--json").json] == ["resume", "pause"]
    refused = cli("actions", "--since", "soon")
    assert refused.code == 2
    assert "soon" in refused.err
