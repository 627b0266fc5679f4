"""The smallest token, to try payments with: each call logs Transfer(caller, to, amount)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apps.chain.anvil import Anvil

TRANSFER = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"  # Transfer(address,address,uint256)

# Called with 64 bytes, the receiver and the amount, as two words. It keeps no balances and asks for none.
CODE = (
    "6020 35"  # PUSH1 32, CALLDATALOAD: the amount
    "5f 52"  # PUSH0, MSTORE: into memory at 0, where the log's data is taken from
    "5f 35"  # PUSH0, CALLDATALOAD: the receiver, the log's third topic
    "33"  # CALLER: its second
    f"7f {TRANSFER}"  # PUSH32: its first, what kind of log it is
    "6020 5f a3"  # PUSH1 32, PUSH0, LOG3: 32 bytes of data from 0
    "00"  # STOP
).replace(" ", "")
# What runs when it is made: PUSH1 length, DUP1, PUSH1 9, PUSH0, CODECOPY, PUSH0, RETURN. It copies what follows its own nine
# bytes into memory, and returns that as the contract's code.
MAKE = f"60{len(CODE) // 2:02x} 80 6009 5f 39 5f f3".replace(" ", "")


def deploy(anvil: Anvil, sender: str, mine: Callable[[], Any]) -> str:
    """Its address, in lower case."""
    transaction = {"from": sender, "data": f"0x{MAKE}{CODE}", "gas": hex(200_000)}
    tx_hash = anvil.call("eth_sendTransaction", transaction)
    mine()
    receipt = anvil.call("eth_getTransactionReceipt", tx_hash)
    assert receipt["status"] == "0x1"
    return str(receipt["contractAddress"]).lower()


def transfer(anvil: Anvil, sender: str, token: str, to: str, amount: int, **fields: Any) -> str:
    """Waiting to be mined; its hash."""
    data = f"0x{to.removeprefix('0x'):0>64}{amount:064x}"
    transaction = {"from": sender, "to": token, "data": data, "gas": hex(100_000), **fields}
    tx_hash: str = anvil.call("eth_sendTransaction", transaction)
    return tx_hash
