"""A feed numbers its firings, keeps the last ones, and says which are gone."""

import pytest

from engine.evaluation.firings import feed as feeds
from engine.evaluation.firings.feed import Feed, Page
from engine.language.limits import Limits


def filled(times: int, *, firings_max: int = 4) -> Feed:
    feed = Feed(Limits(firings_max=firings_max))
    for number in range(1, times + 1):
        feed.append(b"%d" % number)
    return feed


@pytest.mark.parametrize(
    ("after", "limit", "page"),
    [
        (0, 2, Page((1, 2), [b"3", b"4"], 4)),
        (0, 9, Page((1, 2), [b"3", b"4", b"5", b"6"], 6)),
        (1, 1, Page((2, 2), [b"3"], 3)),
        (2, 2, Page(None, [b"3", b"4"], 4)),
        (5, 9, Page(None, [b"6"], 6)),
        (6, 9, Page(None, [], 6)),
    ],
)
def test_a_page_begins_after_a_number_and_says_what_is_gone(after: int, limit: int, page: Page) -> None:
    assert filled(6).page(after, limit) == page


def test_a_feed_that_keeps_nothing_says_that_all_is_gone() -> None:
    feed = filled(3)
    feed.restore(*filled(3, firings_max=9).dump())
    assert feed.page(0, 9) == Page(None, [b"1", b"2", b"3"], 3)
    kept_none = Feed(Limits(firings_max=0))
    kept_none.restore(*feed.dump())
    assert kept_none.page(0, 9) == Page((1, 3), [], 3)
    assert (kept_none.first, kept_none.last, kept_none.bytes) == (4, 3, 0)


def test_what_is_not_durable_yet_is_not_read() -> None:
    feed = filled(2)
    feed.settle(2)
    feed.append(b"3")
    assert (feed.durable, feed.last) == (2, 3)
    assert feed.page(0, 9) == Page(None, [b"1", b"2"], 2)
    for number in range(4, 8):
        feed.append(b"%d" % number)
    assert feed.page(0, 9) == Page((1, 2), [], 2), "those that could be read are gone"
    feed.settle(7)
    assert feed.page(2, 9) == Page((3, 3), [b"4", b"5", b"6", b"7"], 7)


def test_a_page_ends_once_its_firings_have_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(Limits(firings_max=9))
    for firing in (b"aa", b"", b"", b"c", b"d", b"e"):
        feed.append(firing)
    monkeypatch.setattr(feeds, "PAGE_BYTES_MAX", 4)
    assert feed.page(0, 9) == Page(None, [b"aa", b"", b"", b"c", b"d"], 5)
    assert feed.page(1, 9) == Page(None, [b"", b"", b"c", b"d", b"e"], 6)
    monkeypatch.setattr(feeds, "PAGE_BYTES_MAX", 1)
    assert feed.page(0, 9).firings == [b"aa"], "one at least"


def test_numbers_go_on_after_a_restart() -> None:
    feed = Feed(Limits(firings_max=4))
    feed.restore(*filled(6).dump())
    feed.append(b"7")
    assert feed.page(3, 9) == Page(None, [b"4", b"5", b"6", b"7"], 7)
    assert (len(feed), feed.first, feed.last, feed.bytes) == (4, 4, 7, 4)


def test_a_feed_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "FEED_BYTES_MAX", 3)
    feed = filled(12, firings_max=100)
    assert feed.page(0, 9) == Page((1, 11), [b"12"], 12)
    assert feed.bytes == 2
