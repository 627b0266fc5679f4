"""Chain and local copy, side by side. Pure."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from apps.addresses.compare import Differences, Key, Local, Transaction, compare

PAID = Transaction("0x1", 7, "0xa", "0xb", 5, 2, True)
hashes = st.sampled_from(["0x1", "0x2", "0x3", "0x4"])
transactions = st.builds(
    Transaction,
    hashes,
    st.integers(0, 3),
    st.just("0xa"),
    st.none() | st.just("0xb"),
    st.integers(0, 2**256 - 1),
    st.integers(0, 3),
    st.booleans(),
    transfer=st.sampled_from(["", "0xt:0xb:0"]),
)


def by_key(values: list[Transaction]) -> dict[Key, Transaction]:
    return {value.key: value for value in values}


def test_what_is_the_same_is_no_difference() -> None:
    assert compare([PAID], {PAID.key: Local(PAID, deleted=False)}) == Differences([], [], [])


def test_what_is_missing_is_to_be_added() -> None:
    assert compare([PAID], {}) == Differences([PAID], [], [])


def test_each_field_can_differ() -> None:
    for changed in [
        replace(PAID, block_number=8),
        replace(PAID, from_address="0xc"),
        replace(PAID, to_address=None),
        replace(PAID, value=6),
        replace(PAID, fee=3),
        replace(PAID, succeeded=False),
    ]:
        assert compare([PAID], {PAID.key: Local(changed, deleted=False)}) == Differences([], [], [(changed, PAID)])


def test_what_was_deleted_and_is_there_again_is_back_whatever_else_differs() -> None:
    before = replace(PAID, block_number=3)
    assert compare([PAID], {PAID.key: Local(before, deleted=True)}) == Differences([], [(before, PAID)], [])


@given(
    st.lists(transactions).map(by_key),
    st.lists(st.builds(Local, transactions, st.booleans())).map(
        lambda rows: {row.transaction.key: row for row in rows}
    ),
)
def test_with_the_differences_applied_the_local_copy_is_the_chain(
    chain: dict[Key, Transaction], local: dict[Key, Local]
) -> None:
    found = compare([*chain.values()], local)
    after = {name: row.transaction for name, row in local.items() if not row.deleted}
    after |= by_key([*found.missing])
    after |= by_key([new for _, new in [*found.gone_before, *found.differing]])
    assert {name: after[name] for name in chain} == chain
    assert compare([*chain.values()], {name: Local(row, deleted=False) for name, row in after.items()}) == Differences(
        [], [], []
    )


def test_amounts_are_told_as_text_because_readers_of_json_round_them() -> None:
    assert replace(PAID, value=2**256 - 1).facts()["value"] == str(2**256 - 1)
