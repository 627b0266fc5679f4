"""Constants, spellings, and which blocks are compared. Pure."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.addresses.chains import NodeBehind, Window, canonical, known, mistyped, unknown, well_formed, window


@pytest.mark.parametrize(
    ("chain", "depth"),
    [
        ("ethereum", 32),
        ("arbitrum", 32),
        ("polygon", 128),
        ("bitcoin", 6),
        ("litecoin", 6),
        ("solana", 1),
        ("xrpl", 1),
        ("nobody-knows", 32),
    ],
)
def test_each_chain_has_its_depth(chain: str, depth: int) -> None:
    assert known(chain).reorg_depth == depth


@pytest.mark.parametrize(
    ("mode", "checkpoint", "depth", "height", "expected"),
    [
        ("partial", 1000, 32, 1100, Window("partial", 968, 1100)),
        ("partial", 10, 32, 1100, Window("partial", 0, 1100)),
        ("partial", None, 32, 1100, Window("full", 1068, 1100)),
        ("partial", None, 32, 20, Window("full", 0, 20)),
        ("full", 1000, 32, 1100, Window("full", 0, 1100)),
        ("full", None, 32, 0, Window("full", 0, 0)),
        ("partial", 1000, 32, 968, Window("partial", 968, 968)),  # a little behind: as far as it is
        ("partial", 0, 128, 0, Window("partial", 0, 0)),
    ],
)
def test_the_window_is_what_may_have_changed(
    mode: str, checkpoint: int | None, depth: int, height: int, expected: Window
) -> None:
    assert window(mode, checkpoint, depth, height) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["partial", "full"])
def test_a_history_that_begins_somewhere_is_read_from_there(mode: Literal["partial", "full"]) -> None:
    assert window(mode, None, 32, 1100, first_block=700) == Window("full", 700, 1100)
    with pytest.raises(NodeBehind):
        window(mode, None, 32, 699, first_block=700)


@pytest.mark.parametrize("mode", ["partial", "full"])
def test_a_node_far_behind_has_no_window(mode: str) -> None:
    with pytest.raises(NodeBehind, match="at block 967, and we have been at 1000"):
        window(mode, 1000, 32, 967)  # type: ignore[arg-type]


@given(
    st.sampled_from(["partial", "full"]), st.none() | st.integers(0, 2000), st.integers(0, 200), st.integers(0, 2000)
)
def test_a_window_never_reaches_beyond_the_chain_and_covers_the_depth(
    mode: str, checkpoint: int | None, depth: int, height: int
) -> None:
    try:
        found = window(mode, checkpoint, depth, height)  # type: ignore[arg-type]
    except NodeBehind:
        assert checkpoint is not None
        assert height < checkpoint - depth
        return
    assert 0 <= found.from_block <= found.to_block == height
    if found.effective_mode == "partial":
        assert checkpoint is not None
        assert found.from_block == max(0, checkpoint - depth)


@pytest.mark.parametrize(
    ("chain", "address", "right"),
    [
        ("ethereum", "0x" + "a" * 40, True),
        ("ethereum", "0x" + "A" * 40, True),
        ("ethereum", "0x" + "a" * 39, False),
        ("ethereum", "0x" + "g" * 40, False),
        ("ethereum", "0x" + "a" * 40 + "\n", False),
        ("ethereum", "", False),
        ("bitcoin", "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq", True),
        ("bitcoin", "1BoatSLRHtKNngkdXEeobR76b53LETtpyT", True),
        ("xrpl", "rN7n7otQDd6FczFgLdSqtcsAUxDkw6fzRH", True),
        ("solana", "0OIl" * 8, False),
        ("nobody-knows", "anything!", True),
        ("nobody-knows", "with a blank", False),
        ("nobody-knows", "ä", False),
    ],
)
def test_addresses_are_looked_at_as_their_chain_writes_them(chain: str, address: str, right: bool) -> None:
    assert well_formed(chain, address) is right


@pytest.mark.parametrize(
    ("address", "wrong"),
    [
        ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", False),
        ("0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359", False),
        ("0x5aAEb6053F3E94C9b9A09f33669435E7Ef1BeAed", True),
        ("0x" + "5a" * 20, False),
        ("0x" + "5A" * 20, False),
        ("rN7n7otQDd6FczFgLdSqtcsAUxDkw6fzRH", False),
    ],
)
def test_mixed_case_is_a_checksum(address: str, wrong: bool) -> None:
    assert mistyped(address) is wrong


def test_chains_are_known_by_name_or_by_chain_id() -> None:
    assert unknown("ethereum") is unknown("bitcoin") is unknown("eip155-5") is None
    assert known("eip155-5").chain_id == 5
    assert "did you mean polygon?" in (unknown("poligon") or "")
    assert "eip155-<chain id>" in (unknown("x") or "")


def test_only_hexadecimal_addresses_may_be_spelt_in_capitals() -> None:
    assert canonical("0xABcd") == canonical("0Xabcd") == "0xabcd"
    assert canonical("rN7n7otQDd") == "rN7n7otQDd"
