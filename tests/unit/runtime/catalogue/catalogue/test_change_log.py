"""The changes log: pages, what is kept and for how long, and what a restart leaves."""

import time
from contextlib import suppress

import pytest

from engine.language.diagnostics import Refusal
from engine.runtime.catalogue import change_log
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.contract.catalogue_changes import LoggedChange, Made
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import StoredToken
from tests.unit.runtime.catalogue.catalogue.directories import A, B

DAY_MS = 24 * 60 * 60 * 1000
NOW_MS = time.time_ns() // 1_000_000


def change(number: int, days_ago: float = 0) -> LoggedChange:
    made = Made("token name", "request", round(NOW_MS - days_ago * DAY_MS))
    return LoggedChange("rule", "change", str(number), old=b'{"a":1}' * 10, made=made)


def logged(directory: Catalogue, after: int = 0, limit: int = 10_000) -> list[str]:
    return [one.id for one in directory.logged_changes(after, limit).changes]


def pages_of(tmp_path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "directory").glob("page-*"))


@pytest.fixture
def small_pages(monkeypatch):
    monkeypatch.setattr(change_log, "_BYTES_IN_STATE_MAX", 100)


@pytest.mark.usefixtures("small_pages")
def test_what_has_moved_to_pages_is_read_as_before(opened, tmp_path):
    directory = opened()
    for number in range(10):
        directory.report_changes(str(number), [change(2 * number), change(2 * number + 1)])
        if number % 3 == 1:
            directory._save()
    assert len(pages_of(tmp_path)) == 3
    expected = [str(number) for number in range(20)]
    for _ in range(2):
        assert logged(directory) == expected
        for after in range(21):
            assert logged(directory, after, 3) == expected[after : after + 3]
            assert directory.logged_changes(after, 3).next == min(20, after + 3)
        assert directory.logged_changes(99, 3).next == 99
        directory = opened()


def test_a_snapshot_repeats_little_of_the_log(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(change_log, "_CHANGES_IN_STATE_MAX", 100)
    directory = opened()
    for number in range(20):
        directory.report_changes(str(number), [change(number) for _ in range(30)])
        directory._save()
        assert len(directory._state.log.recent) <= 100
    assert len(logged(directory)) == 600
    assert len(pages_of(tmp_path)) == 5


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("days", [1, 90])
def test_what_is_older_than_the_setting_says_is_gone(tmp_path, days):
    settings = RuntimeSettings(data=tmp_path, snapshots_kept=2, lock_wait_s=0, changes_kept_days=days)
    directory = Catalogue(settings)
    directory.open()
    for number, days_ago in enumerate((days + 2, days + 1, days - 0.5)):
        both = [change(10 * number, days_ago + 1), change(10 * number + 1, days_ago)]
        directory.report_changes(str(number), both)
        directory._save()
    assert logged(directory) == ["21"], "of one page"
    directory.report_changes("last", [change(30)])
    directory._save()
    assert len(pages_of(tmp_path)) == 1
    assert [one.seq for one in directory.logged_changes(0, 10).changes] == [6, 7], "numbers stay"
    directory.close()


def test_a_report_that_is_repeated_is_logged_once(opened):
    directory = opened()
    for report in ("one", "one", "other", "one"):
        directory.report_changes(report, [change(1)])
    again = opened()
    again.report_changes("one", [change(1)])
    assert logged(again) == ["1", "1"]


def test_what_the_directory_changes_itself_is_logged_with_it(opened):
    directory = opened()
    made = Made("x name", "request", NOW_MS)
    directory.add_token(A, StoredToken(b"digest", "hint", "shop"), made)
    directory.add_token(A, StoredToken(b"digest", "hint", "shop"), made)
    directory.create_detectors({B: "b"}, made={B: made})
    directory.delete_detector(B, made)
    with suppress(Refusal):
        directory.delete_detector(B, made)
    directory.revoke_token(A, made)
    with suppress(Refusal):
        directory.revoke_token(A, made)
    for _ in range(2):
        found = directory.logged_changes(0, 10).changes
        assert [(one.kind, one.action, one.name) for one in found] == [
            ("token", "create", "shop"),
            ("detector", "create", "b"),
            ("detector", "delete", "b"),
            ("token", "delete", "shop"),
        ]
        assert {one.made for one in found} == {made}
        assert b"digest" not in b"".join(one.old + one.new for one in found)
        directory = opened()
