"""Keccak-256, as Ethereum has it: SHA-3 before its padding was changed. It is what checksums of addresses are made with (EIP-55)."""

from __future__ import annotations

RATE = 136  # bytes
MASK = 2**64 - 1


def _constants() -> list[int]:
    """One word for each of the 24 rounds, from the generator that the specification gives."""
    constants, state = [], 1
    for _ in range(24):
        word = 0
        for j in range(7):
            if state & 1:
                word |= 1 << ((1 << j) - 1)
            state = (state << 1) ^ (0x171 if state & 0x80 else 0)
        constants.append(word)
    return constants


def _rotations() -> list[int]:
    rotations, x, y = [0] * 25, 1, 0
    for t in range(24):
        rotations[x + 5 * y] = (t + 1) * (t + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return rotations


CONSTANTS, ROTATIONS = _constants(), _rotations()


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & MASK


def _permute(words: list[int]) -> list[int]:
    for constant in CONSTANTS:
        columns = [words[x] ^ words[x + 5] ^ words[x + 10] ^ words[x + 15] ^ words[x + 20] for x in range(5)]
        mixed = [columns[x - 1] ^ _rotate(columns[(x + 1) % 5], 1) for x in range(5)]
        moved = [0] * 25
        for i in range(25):
            x, y = i % 5, i // 5
            moved[y + 5 * ((2 * x + 3 * y) % 5)] = _rotate(words[i] ^ mixed[x], ROTATIONS[i])
        words = [
            moved[i] ^ (~moved[i - i % 5 + (i + 1) % 5] & MASK & moved[i - i % 5 + (i + 2) % 5]) for i in range(25)
        ]
        words[0] ^= constant
    return words


def keccak256(message: bytes) -> bytes:
    padded = bytearray(message) + bytearray(RATE - len(message) % RATE)
    padded[len(message)] ^= 0x01
    padded[-1] ^= 0x80
    words = [0] * 25
    for start in range(0, len(padded), RATE):
        for i in range(RATE // 8):
            words[i] ^= int.from_bytes(padded[start + 8 * i : start + 8 * i + 8], "little")
        words = _permute(words)
    return b"".join(word.to_bytes(8, "little") for word in words[:4])


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
