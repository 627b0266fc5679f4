"""Keccak-256, as Ethereum has it: SHA-3 before its padding was changed. It is what checksums of addresses are made with (EIP-55)."""

from __future__ import annotations

from Crypto.Hash import keccak


def keccak256(message: bytes) -> bytes:
    return bytes(keccak.new(digest_bits=256, data=message).digest())


def with_checksum(address: str) -> str:
    """A hexadecimal address, in the capitals that are its checksum."""
    digits = address[2:].lower()
    hashed = keccak256(digits.encode()).hex()
    return "0x" + "".join(
        digit.upper() if int(half, 16) >= 8 else digit for digit, half in zip(digits, hashed, strict=False)
    )


def has_checksum(address: str) -> bool:
    """Only mixed case carries one."""
    return address[2:] not in (address[2:].lower(), address[2:].upper())


def is_checksum_right(address: str) -> bool:
    return address[2:] == with_checksum(address)[2:]
