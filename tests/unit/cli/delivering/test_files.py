"""The files of deliveries: places, lines that are appended, and templates."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.cli.delivering.places import Places, PlacesError
from api.cli.delivering.targets import Appended, TargetError, Webhook, target_of
from api.cli.delivering.templates import FORMS, PLACEHOLDERS, TemplateError, form_of
from rule_detector_client import Detector, Firing

LOGINS = Detector("7" * 32, "logins & more")
FIRING = Firing(
    3,
    1_709_542_830_123.456,
    "r",
    'a "rule" <!channel>',
    2,
    {"ip": '192.0.2.7"}', "user.id": 7},
    found={"count(a) within 1m": 10**30},
    labels={"severity": "high", "level": 7},
    suppressed=4,
)


# Places


def places(path: Path, **options: Any) -> Places:
    return Places(path, options.pop("sync", lambda: None), every=options.pop("every", True))


def test_places_are_found_again_and_a_second_process_is_refused(tmp_path: Path) -> None:
    first = places(tmp_path / "state")
    assert (first.of("d"), first.is_complete) == (None, False)
    first.move("d", 7)
    first.move("e", 8)
    first.forget("e")
    first.complete()
    with pytest.raises(PlacesError, match="another process delivers"):
        places(tmp_path / "state")
    first.close()
    again = places(tmp_path / "state")
    assert (again.of("d"), again.of("e"), again.is_complete) == (7, None, True)
    again.close()


def test_a_save_that_comes_late_leaves_the_file_to_whoever_has_it_now(tmp_path: Path) -> None:
    first = places(tmp_path / "state")
    first.move("d", 1)
    first.close()
    second = places(tmp_path / "state")
    second.move("d", 2)
    second.close()
    first.save()
    assert msgspec.json.decode((tmp_path / "state").read_bytes())["places"] == {"d": 2}


@pytest.mark.parametrize("every", [(True, False), (False, True), (False, False)])
def test_a_detector_without_a_place_is_new_only_if_all_were_followed_before_and_are_now(
    tmp_path: Path, every: tuple[bool, bool]
) -> None:
    for each in every:
        found = places(tmp_path / "state", every=each)
        assert not found.is_complete
        found.close()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "damaged"),
        (b'{"version":1,"every":true,"places":{"d":', "damaged"),
        (b'{"version":1,"every":true,"places":{"d":"7"}}', "damaged"),
        (b'{"version":1,"every":true,"places":{},"more":1}', "damaged"),
        (b"\xff\x00", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b'{"version":2,"every":true,"places":{}}', "newer version"),
    ],
)
def test_a_damaged_file_is_told_and_left_as_it_is(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "state").write_bytes(data)
    with pytest.raises(PlacesError, match=said) as raised:
        places(tmp_path / "state")
    assert str(tmp_path / "state") in str(raised.value)
    assert (tmp_path / "state").read_bytes() == data


def test_places_are_saved_after_what_they_speak_of_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda one: done.append("sync") or fsync(one))
    monkeypatch.setattr(Path, "rename", lambda one, to: done.append("rename") or rename(one, to))
    kept = places(tmp_path / "state", sync=lambda: done.append("target"))
    kept.move("d", 7)
    kept.save()
    assert done == ["target", "sync", "rename", "sync"]
    # What a crash has left is in nobody's way.
    (tmp_path / "state.new").write_bytes(b"half")
    kept.close()
    assert msgspec.json.decode((tmp_path / "state").read_bytes())["places"] == {"d": 7}


def test_if_the_target_cannot_be_synced_the_places_stay_as_they_are(tmp_path: Path) -> None:
    def fails() -> None:
        raise OSError(errno.EIO, "it is broken")

    kept = places(tmp_path / "state")
    kept.save()
    before = (tmp_path / "state").read_bytes()
    kept.close()
    kept = places(tmp_path / "state", sync=fails)
    kept.move("d", 7)
    with pytest.raises(OSError, match="broken"):
        kept.close()
    assert (tmp_path / "state").read_bytes() == before


# Files to which lines are appended


def test_a_line_that_a_crash_has_cut_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "fired"
    file.write_bytes(b"1\n{cut")
    target = Appended(file)
    target.append(b"2")
    target.append(b"3")
    assert file.read_bytes() == b"1\n{cut\n2\n3\n"
    assert file.stat().st_mode & 0o777 == 0o644, "a file that is there keeps its mode"


def test_a_file_that_is_renamed_or_removed_is_made_anew(tmp_path: Path) -> None:
    target = Appended(tmp_path / "fired")
    target.append(b"1")
    (tmp_path / "fired").rename(tmp_path / "fired.1")
    target.append(b"2")
    target.sync()
    (tmp_path / "fired").unlink()
    target.append(b"3")
    assert (tmp_path / "fired.1").read_bytes() == b"1\n"
    assert (tmp_path / "fired").read_bytes() == b"3\n"


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Appended(tmp_path / "fired")
    target.append(b"1")
    write = os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) > 2:
            return write(descriptor, data[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            target.append(b"234")
    target.append(b"5")
    assert (tmp_path / "fired").read_bytes() == b"1\n5\n"


def test_what_is_no_target_is_refused_and_not_repeated(tmp_path: Path) -> None:
    for address in ("ftp://u:secret@host", "http://", "http://\x00secret", "http://h:65536", "http://xn--"):
        with pytest.raises(TargetError) as raised:
            target_of(address, None, 1.0)
        assert "secret" not in str(raised.value)
    with pytest.raises(TargetError, match="signs requests"):
        target_of("-", "key", 1.0)
    with pytest.raises(OSError, match="directory"):
        target_of(str(tmp_path), None, 1.0)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        target_of(str(tmp_path / "pipe"), None, 1.0)
    webhook = target_of("https://u:secret@hooks.example:8443/secret?key=secret", "key", 1.0)
    assert isinstance(webhook, Webhook)
    assert str(webhook) == "https://hooks.example:8443"


# Templates


def body(template: str) -> Any:
    return json.loads(form_of(template).body(LOGINS, FIRING))


def test_slack_is_told_in_words_that_mention_nobody() -> None:
    assert body("slack") == {
        "text": '*a "rule" &lt;!channel&gt;*  ip=192.0.2.7"} user.id=7\n'
        "2024-03-04T09:00:30.123Z  logins &amp; more\ncount(a) within 1m=1" + "0" * 30 + "\n"
        "4 more were held back before"
    }


def test_a_cloud_event_has_what_its_specification_requires() -> None:
    event = body("cloudevents")
    assert {name: event[name] for name in ("specversion", "id", "source", "type", "time")} == {
        "specversion": "1.0",
        "id": "3",
        "source": f"/api/detectors/{'7' * 32}",
        "type": "rule-detector.firing",
        "time": "2024-03-04T09:00:30.123Z",
    }
    assert event["data"] == body("generic")
    assert event["data"]["found"] == FIRING.found
    assert FORMS["cloudevents"].content_type == "application/cloudevents+json; charset=utf-8"


def test_a_file_of_json_is_filled_and_stays_json(tmp_path: Path) -> None:
    document = {
        "text": "$rule for $keys costs $$5",
        "one": ["${keys.ip}", "${keys.user.id}", "${keys.nobody}", "${labels.severity}!"],
        "values": ["$priority", "$keys", "$found", "${labels.level}", "$timed", "$why", 7, None],
        "found": "${found.count(a) within 1m}",
        "$not": "$time $time_ms $detector_id $suppressed",
    }
    (tmp_path / "t.json").write_text(json.dumps(document))
    assert body(str(tmp_path / "t.json")) == {
        "text": 'a "rule" <!channel> for ip=192.0.2.7"} user.id=7 costs $5',
        "one": ['192.0.2.7"}', 7, "", "high!"],
        "values": [2, FIRING.keys, FIRING.found, 7, False, None, 7, None],
        "found": 10**30,
        "$not": f"2024-03-04T09:00:30.123Z 1709542830123.456 {'7' * 32} 4",
    }


def test_any_other_file_is_filled_as_text(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("$rule ($detector) é ${labels.severity} $found\n")
    form = form_of(str(tmp_path / "t"))
    assert form.content_type == "text/plain; charset=utf-8"
    said = f'a "rule" <!channel> (logins & more) é high count(a) within 1m=1{"0" * 30}\n'
    assert form.body(LOGINS, FIRING).decode() == said


def test_every_placeholder_has_a_value_for_the_barest_firing(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({name: f"${name} ${name}" for name in PLACEHOLDERS}))
    assert json.loads(
        form_of(str(tmp_path / "t.json")).body(Detector("d", "n"), Firing(1, 0.0, "r", "n", 1, {}))
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t", "$nobody", r"there is no `\$nobody`; there are \$detector, "),
        ("t.json", '["${rule.name}"]', r"there is no `\$rule.name`"),
        ("t", "5$ or", "begins no placeholder"),
        ("t.json", "{", "not JSON"),
        ("t.json", '{"a": "$"}', "begins no placeholder"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TemplateError, match=said):
        form_of(str(tmp_path / name))
    (tmp_path / name).write_bytes(b"\xff")
    with pytest.raises(TemplateError, match="UTF-8"):
        form_of(str(tmp_path / name))
    with pytest.raises(TemplateError, match="no such file"):
        form_of(str(tmp_path / "nowhere"))
