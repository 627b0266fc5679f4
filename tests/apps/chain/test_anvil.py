"""The real node that the tests and the local runs use."""

from __future__ import annotations

import urllib.error
from pathlib import Path

import pytest

from apps.chain import anvil
from apps.chain.anvil import Anvil
from apps.servers.server import ServerError
from tests.support.waiting import wait_until


def test_transfers_are_mined_when_asked_for() -> None:
    with Anvil() as node:
        ada, bob = node.accounts()[:2]
        sent = node.send(ada, bob, 7)
        assert node.call("eth_getTransactionReceipt", sent) is None
        assert node.mine(2) == 2
        assert node.call("eth_getTransactionReceipt", sent)["blockNumber"] == "0x1"


def test_two_nodes_have_chains_of_their_own() -> None:
    with Anvil() as one, Anvil() as other:
        one.mine(3)
        assert (one.height(), other.height()) == (3, 0)
        assert one.port != other.port


def test_a_node_that_was_stopped_refuses_and_starts_anew_on_its_port() -> None:
    with Anvil() as node:
        node.mine()
        node.stop()
        with pytest.raises(urllib.error.URLError):
            node.height()
        url = node.url
        node.start()
        assert (node.url, node.height()) == (url, 0)
        node.stop()
        node.stop()


def test_a_reorganisation_takes_transactions_away() -> None:
    with Anvil() as node:
        ada, bob = node.accounts()[:2]
        sent = node.send(ada, bob, 7)
        node.mine(2)
        node.call("anvil_reorg", 2, [])
        assert node.call("eth_getTransactionReceipt", sent) is None
        assert node.height() == 2


def test_a_node_that_hangs_goes_on_afterwards() -> None:
    with Anvil() as node:
        with node.hanging():
            assert node._process is not None
            stat = Path(f"/proc/{node._process.pid}/stat")
            wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")
        assert node.height() == 0


def test_what_it_refuses_is_told() -> None:
    with Anvil() as node, pytest.raises(ServerError, match="eth_nonsense: Method not found"):
        node.call("eth_nonsense")


def test_options_that_it_does_not_know_are_told_of() -> None:
    with pytest.raises(ServerError, match="did not start"), Anvil("--nonsense"):
        pass


def test_a_program_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANVIL", "/opt/foundry/anvil")
    assert anvil.program() == Path("/opt/foundry/anvil")


def test_a_machine_without_a_package_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ANVIL", raising=False)
    monkeypatch.setattr(anvil, "CACHE", tmp_path)
    monkeypatch.setattr(anvil.platform, "machine", lambda: "abacus")
    with pytest.raises(ServerError, match="-abacus: install Foundry and set ANVIL"):
        anvil.program()
