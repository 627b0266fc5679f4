from __future__ import annotations

import random

from trueup.reconcile.progress import MERGE_AT, Point, Progress

START = Point(None, 0, 0)


def test_a_cursor_is_kept_when_everything_before_it_is_handled() -> None:
    progress = Progress(START)
    first, second, third = (progress.found(cursor) for cursor in ("1", "2", "3"))
    progress.handled(second)
    progress.handled(third)
    assert (progress.point, progress.moved) == (START, False)
    progress.handled(first)
    assert progress.point == Point("2", 2, 0)
    assert progress.moved


def test_the_latest_cursor_waits_until_it_is_known_that_nothing_more_has_it() -> None:
    progress = Progress(START)
    progress.handled(progress.found("1"))
    assert progress.point == START
    progress.handled(progress.found("1"))
    assert progress.point == START
    progress.found("2")
    assert progress.point == Point("1", 2, 0)


def test_a_page_whose_items_share_a_cursor_is_kept_as_a_whole() -> None:
    progress = Progress(START)
    page = [progress.found("2") for _ in range(3)]
    progress.found("3")
    for group in page[:2]:
        progress.handled(group)
    assert progress.point == START
    progress.handled(page[2], failed=True)
    assert progress.point == Point("2", 3, 1)


def test_the_end_completes_the_last_page() -> None:
    progress = Progress(Point("7", 10, 1))
    group = progress.found(None)
    progress.ended()
    before = progress.settled
    progress.handled(group)
    assert (before, progress.settled) == (False, True)
    assert progress.point == Point(None, 11, 1)


def test_a_cursor_that_comes_again_later_is_another_page() -> None:
    progress = Progress(START)
    for cursor in ("1", "2", "1"):
        progress.handled(progress.found(cursor))
    assert progress.point == Point("2", 2, 0)


def test_what_was_handled_while_a_point_was_being_kept_is_still_to_be_kept() -> None:
    progress = Progress(START)
    groups = [progress.found(str(number)) for number in range(4)]
    progress.handled(groups[0])
    kept = progress.point
    progress.handled(groups[1])
    progress.kept(kept)
    assert (progress.moved, progress.beyond) == (True, 1)
    progress.kept(progress.point)
    assert (progress.moved, progress.beyond) == (False, 0)


def test_while_the_first_takes_long_the_others_take_no_room() -> None:
    progress = Progress(START)
    slow = progress.found("0")
    for number in range(1, 10_000):
        progress.handled(progress.found(str(number)), failed=number % 2 == 0)
        assert len(progress._groups) <= MERGE_AT
    assert progress.point == START
    progress.handled(slow)
    assert progress.point == Point("9998", 9_999, 4_999)


def test_in_any_order_a_point_never_has_anything_unhandled_before_it() -> None:
    for seed in range(100):
        order = random.Random(seed)
        progress = Progress(START)
        pages = [number // order.randint(1, 5) for number in range(500)]
        open_items: list[int] = []
        groups = {}
        handled: set[int] = set()
        for number, page in enumerate(pages):
            groups[number] = progress.found(str(page))
            open_items.append(number)
            while len(open_items) > order.randint(0, 16):
                done = open_items.pop(order.randrange(len(open_items)))
                progress.handled(groups[done])
                handled.add(done)
            counted = progress.point.items
            assert handled.issuperset(range(counted)), f"seed {seed}"
            assert counted == 0 or progress.point.cursor == str(pages[counted - 1]), f"seed {seed}"
            assert counted == len(pages) or pages[counted] != pages[counted - 1] or counted == 0, f"seed {seed}"
        progress.ended()
        for left in open_items:
            progress.handled(groups[left])
        assert progress.point.items == 500, f"seed {seed}"
        assert progress.settled
