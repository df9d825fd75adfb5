"""Temporary folders are cleared away by whoever comes next, and nobody else's are."""

from pathlib import Path

import pytest

from engine.runtime.process import temporary
from engine.runtime.process.temporary import TemporaryFolder


def folder() -> TemporaryFolder:
    return TemporaryFolder("rd-ray-", frozenset({"ray"}))


@pytest.fixture(autouse=True)
def _within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(temporary, "_CHARS_MAX", 1_000)


def test_what_a_killed_process_left_behind_is_removed_by_the_next_start_and_nothing_else(tmp_path):
    held, left = folder(), folder()
    for each in (held, left):
        (each.path / "ray" / "session").mkdir(parents=True)
    # As the operating system does when a process ends.
    left._lock.release()
    foreign = tmp_path / "rd-ray-of-someone"
    (foreign / "ray").mkdir(parents=True)
    busy = tmp_path / "rd-ray-with-more"
    busy.mkdir()
    (busy / "lock").touch()
    (busy / "thesis.txt").touch()
    new = folder()
    assert set(tmp_path.iterdir()) == {held.path, new.path, foreign, busy}
    new.remove()
    held.remove()


def test_a_folder_is_for_its_user_alone_and_goes_with_all_that_is_in_it(tmp_path):
    made = folder()
    assert made.path.stat().st_mode & 0o777 == 0o700
    (made.path / "ray").mkdir()
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_never_so_deep_that_a_socket_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(temporary, "_CHARS_MAX", 40)
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(deep))
    made = folder()
    assert len(str(made.path)) < 70
    made.remove()
