"""Which addresses a webhook may connect to.

A URL that a user chose must not reach hosts that only we can reach (SSRF): this machine, the private network, the metadata
service of a cloud. A name proves nothing, and its addresses may change between a check and the connection. So the name is
resolved here, all of its addresses are checked, and the connection is made to a checked address.

The ranges are those of IANA's special-purpose registries. They are written out because Python's `is_private` and
`is_global` differ from one patch release to the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from itertools import chain, zip_longest

from trueup.errors import ConfigError
from trueup.integrations.webhooks import resolver
from trueup.integrations.webhooks.errors import TargetRefused
from trueup.integrations.webhooks.resolver import Address

_FORBIDDEN_4 = {
    IPv4Network(network): kind
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's customers"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's own"),  # Azure's, in a public range
        ("169.254.0.0/16", "link-local"),  # with the metadata services at 169.254.169.254
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
}
_PUBLIC_6 = IPv6Network("2000::/3")  # all that is handed out; whatever is outside has a purpose of its own
_FORBIDDEN_6 = {
    IPv6Network(network): kind
    for network, kind in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("2001::/23", "reserved"),  # with Teredo
        ("2001:db8::/32", "reserved"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "reserved"),
        ("fc00::/7", "private"),  # with the metadata service at fd00:ec2::254
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
    )
}
_NAT64 = IPv6Network("64:ff9b::/96")  # where a network without IPv4 reaches the whole of it
MAX_TRIED = 4  # addresses of one host: more would leave each too little of the time


class AddressGuard:
    """Checks addresses. `allow` makes exceptions: networks ("10.1.0.0/16"), addresses, or host names, which are then trusted
    wherever they point."""

    def __init__(self, allow: Iterable[str] | str = ()) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        self._names: set[str] = set()
        for entry in (allow,) if isinstance(allow, str) else allow:
            self._add(entry)

    def _add(self, entry: object) -> None:
        if isinstance(entry, str):
            try:
                self._networks.append(ip_network(entry))
                return
            except ValueError:
                name = _plain(entry)
                if name and not set(name) & set("/:*@ \t\r\n\0"):
                    self._names.add(name)
                    return
        raise ConfigError(
            f'allow={entry!r:.80}: a network like "10.1.0.0/16" (without bits beyond its length), an address or a host name is needed'
        )

    def fault(self, host: str, address: Address) -> str | None:
        """Why this address of this host may not be connected to; None when it may."""
        kind = kind_of(address)
        if kind is None or _plain(host) in self._names:
            return None
        seen_as = (address, embedded(address))
        if any(one is not None and one in network for one in seen_as for network in self._networks):
            return None
        return f"the address {address} is {kind}; if you trust it, name it in allow= (for alerts and pings: TRUEUP_OUTGOING_ALLOW)"

    async def addresses(self, host: str) -> list[Address]:
        """The addresses to connect to, in the order to try them.

        Raises TargetRefused if any address of the host is forbidden: one bad address among good ones is no accident, or
        one that a person has to repair. Raises OSError when the name cannot be resolved.
        """
        addresses = await resolver.SHARED.addresses(host)
        for address in addresses:
            fault = self.fault(host, address)
            if fault is not None:
                raise TargetRefused(f"{host}: {fault}")
        return _in_turns(addresses)[:MAX_TRIED]


def kind_of(address: Address) -> str | None:
    """What is special about an address; None for those of the public network."""
    inner = embedded(address)
    if inner is not None:
        return kind_of(inner)
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _FORBIDDEN_4.items() if address in network), None)
    kind = next((kind for network, kind in _FORBIDDEN_6.items() if address in network), None)
    return kind if kind is not None or address in _PUBLIC_6 else "reserved"


def embedded(address: Address) -> IPv4Address | None:
    """The IPv4 address that a packet to this IPv6 address ends up at."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
        return address.ipv4_mapped
    return None


def _in_turns(addresses: list[Address]) -> list[Address]:
    """Alternates between the families: all addresses of one family may be unreachable."""
    first = [address for address in addresses if address.version == addresses[0].version]
    second = [address for address in addresses if address.version != addresses[0].version]
    return [address for address in chain.from_iterable(zip_longest(first, second)) if address is not None]


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")
