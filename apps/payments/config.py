"""What can be configured, from the environment. A bad value stops the start, under a code of its own."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from trueup import ConfigError

from .chains import KINDS, kind, observable
from .judge import Rules

PREFIX = "PAYMENT_REQUEST_RECONCILER_"
CHAINS = "PAYMENT_REQUEST_CHAINS"
DAY = 86_400


@dataclass(frozen=True)
class Config:
    nodes: Mapping[str, str]  # a chain's node, by the chain's name
    enabled: bool
    poll_interval: timedelta
    batch_size: int
    concurrency: int
    lease_for: timedelta
    worker_id: str
    observer_timeout: timedelta
    thresholds: Rules
    confirmations: Mapping[str, int]  # by kind of chain

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Config:
        """Raises ConfigError naming the variable, beginning with its code."""
        read = _Reader(environment)
        return cls(
            nodes=read.nodes(),
            enabled=read.flag("ENABLED", "false"),
            poll_interval=read.seconds("POLL_INTERVAL_SECONDS", "15", 0.1, DAY),
            batch_size=read.whole("BATCH_SIZE", "100", 1, 10_000),
            concurrency=read.whole("CONCURRENCY", "20", 1, 1_000),
            lease_for=read.seconds("LEASE_SECONDS", "30", 1, DAY),
            worker_id=read.name("WORKER_ID", f"{socket.gethostname()}:{os.getpid()}"),
            observer_timeout=read.seconds("OBSERVER_TIMEOUT_SECONDS", "5", 0.1, 300),
            thresholds=Rules(
                detected_bps=read.whole("DETECTED_THRESHOLD_BPS", "10000", 1, 10_000),
                confirmed_bps=read.whole("CONFIRMED_THRESHOLD_BPS", "10000", 1, 10_000),
                grace=read.seconds("EXPIRY_GRACE_SECONDS", "3600", 0, 30 * DAY),
                window=read.seconds("REORG_OBSERVE_WINDOW_SECONDS", str(DAY), 0, 365 * DAY),
            ),
            confirmations={name: read.whole(kind.confirmations, "1", 1, 100_000) for name, kind in KINDS.items()},
        )

    def rules(self, chain_id: str) -> Rules:
        """What is asked of payments on this chain."""
        rules = self.thresholds
        return Rules(
            rules.detected_bps,
            rules.confirmed_bps,
            self.confirmations[chain_id.partition(":")[0]],
            rules.grace,
            rules.window,
        )

    def __repr__(self) -> str:
        # A node's address often has a key in it.
        return f"<Config worker_id={self.worker_id} chains={', '.join(self.nodes)} poll_interval={self.poll_interval}>"


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def _text(self, name: str, default: str) -> str:
        return self._environment.get(PREFIX + name, default)

    def flag(self, name: str, default: str) -> bool:
        text = self._text(name, default)
        if text not in ("true", "false"):
            raise _invalid(name, f"{text!r}: true or false is needed")
        return text == "true"

    def whole(self, name: str, default: str, low: int, high: int) -> int:
        text = self._text(name, default)
        if not re.fullmatch("[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise _invalid(name, f"{text!r}: a whole number from {low} to {high} is needed")
        return int(text)

    def seconds(self, name: str, default: str, low: float, high: float) -> timedelta:
        text = self._text(name, default)
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) or not low <= float(text) <= high:
            raise _invalid(name, f"{text!r}: seconds from {low:g} to {high:g} are needed")
        return timedelta(seconds=float(text))

    def name(self, name: str, default: str) -> str:
        text = self._text(name, default)
        if not re.fullmatch(r"[!-~]{1,100}", text):
            raise _invalid(name, f"{text!r}: a name of up to 100 letters, digits and signs is needed")
        return text

    def nodes(self) -> Mapping[str, str]:
        """`eip155:1=https://…`, with commas between. What is wrong with one is told without its address."""
        nodes: dict[str, str] = {}
        for part in filter(None, map(str.strip, self._environment.get(CHAINS, "").split(","))):
            chain_id, _, url = part.partition("=")
            if kind(chain_id) is not None and not observable(chain_id):
                raise _invalid_chains(f"{chain_id!r}: no observer exists for such a chain")
            if not observable(chain_id):  # and it may be an address in the wrong place: not repeated
                raise _invalid_chains("a chain's name such as eip155:1 is needed before each node")
            if chain_id in nodes:
                raise _invalid_chains(f"{chain_id!r} is there twice")
            if not _is_url(url):
                raise _invalid_chains(f"{chain_id!r}: the address of its node is needed, such as http://127.0.0.1:8545")
            nodes[chain_id] = url
        if not nodes:
            raise _invalid_chains("chains and their nodes are needed, such as eip155:1=http://127.0.0.1:8545")
        return nodes


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and not re.search(r"\s", text)
        )
    except ValueError:
        return False


def _invalid(name: str, why: str) -> ConfigError:
    return ConfigError(f"CONFIG_RECONCILER_{name}_INVALID: {PREFIX}{name}={why}")


def _invalid_chains(why: str) -> ConfigError:
    return ConfigError(f"CONFIG_CHAINS_INVALID: {CHAINS}: {why}")
