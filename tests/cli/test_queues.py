from __future__ import annotations

import json

from tests.cli.conftest import Cli


def test_the_command_line_pauses_lists_and_resumes(cli: Cli) -> None:
    assert "queue mail is paused" in cli("queues", "pause", "mail", "--reason", "later").err
    assert "was paused already" in cli("queues", "pause", "mail").err
    cli("queues", "pause", "--kind", "send")
    listed = json.loads(cli("queues", "list", "--json").out)
    assert [(each["what"], each["name"], each["reason"]) for each in listed["paused"]] == [
        ("queue", "mail", "later"),
        ("kind", "send", None),
    ]
    status = cli("status")
    assert "queue mail was paused " in status.out
    assert "trueup queues resume --kind send" in status.out
    assert json.loads(cli("queues", "resume", "mail", "--json").out)["changed"]
    assert "is resumed" in cli("queues", "resume", "--kind", "send").err
    assert "no job is queued" in cli("queues", "list").out
    assert cli("queues", "pause").code == 2
