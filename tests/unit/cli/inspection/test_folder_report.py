import json

import msgspec

from api.cli.inspection.report import (
    Catalogue,
    Contents,
    DataFolderReport,
    Defect,
    DetectorReport,
    KnownToken,
    RuleEntry,
    SegmentFile,
    SnapshotFile,
    Storage,
    size,
    to_json,
    to_lines,
)

ID = "6f1c2a9be07d4c58a3f0d1e2b3c4d5e6"
RULE_ID = "0b7d3c41f2a84e6d9c5b1a0f8e7d6c5b"
STORAGE = Storage(
    folder="/d/detectors/" + ID,
    position=17,
    snapshots=[
        SnapshotFile(file="snapshot-12.rds", sequence=12, epoch=3, bytes=1_536),
        SnapshotFile(file="snapshot-5.rds", sequence=5, epoch=2, bytes=512),
    ],
    segments=[SegmentFile(file="journal-3-1.rdj", epoch=3, first=13, last=17, records=5, bytes=900)],
)
RULES = [
    RuleEntry(id=RULE_ID, name="forced", priority=1, enabled=True, notify=True, condition="a == 1"),
    RuleEntry(id=ID, name="two\nlines", priority=3, enabled=False, notify=False, condition="once b == 2"),
]
HELD = Contents(
    clock_us=1_700_000_000_500_000,
    events_seen=2772,
    live_keys=1,
    temporal_nodes=7,
    rule_count=2,
    rules_enabled=1,
)
WHOLE = DataFolderReport(
    data="/d",
    identity=RULE_ID,
    catalogue=Catalogue(
        storage=Storage(folder="/d/directory", position=4),
        tokens=[KnownToken(id="t1", hint="aB3_"), KnownToken(id="t2", hint="-9xY")],
        detectors=1,
    ),
    detectors=[DetectorReport(id=ID, name="shop", storage=STORAGE, contents=HELD)],
)


def changed(report: DataFolderReport, **detector: object) -> DataFolderReport:
    entry = msgspec.structs.replace(report.detectors[0], **detector)
    return msgspec.structs.replace(report, detectors=[entry])


def test_a_whole_folder_is_told_on_a_page() -> None:
    assert list(to_lines(WHOLE)) == [
        "/d: whole",
        f"id {RULE_ID}",
        "",
        "catalogue",
        "  tokens     2: …aB3_, …-9xY",
        "  detectors  1",
        "  snapshots  0, 0 bytes",
        "  journal    0 segments with 0 records, 0 bytes",
        "  position   record 4",
        "",
        f'detector {ID}  "shop"',
        "  rules      2, 1 of them disabled",
        "  events     2772 seen, the clock at 2023-11-14T22:13:20.500Z",
        "  memory     1 live key, 7 temporal nodes",
        "  snapshots  2, 2.0 KiB, the newest of record 12",
        "  journal    1 segment with 5 records, 900 bytes",
        "  position   record 17",
    ]


def test_rules_are_told_where_they_were_asked_for() -> None:
    report = changed(WHOLE, contents=msgspec.structs.replace(HELD, rules=RULES))
    assert list(to_lines(report))[-4:] == [
        f'  rule 1  {RULE_ID}  "forced"  (notify)',
        "    a == 1",
        f'  rule 3  {ID}  "two\\nlines"  (disabled)',
        "    once b == 2",
    ]
    assert "rules" not in json.loads(to_json(WHOLE))["detectors"][0]["contents"]
    [told, _] = json.loads(to_json(report))["detectors"][0]["contents"]["rules"]
    assert told == {
        "id": RULE_ID,
        "name": "forced",
        "priority": 1,
        "enabled": True,
        "notify": True,
        "condition": "a == 1",
    }


def test_damage_is_told_at_the_end_with_file_and_offset_and_what_is_lost_is_left_out() -> None:
    storage = msgspec.structs.replace(
        STORAGE, position=None, refusal="a hole", set_aside=["snapshot-9.rds.damaged"]
    )
    report = msgspec.structs.replace(
        changed(WHOLE, storage=storage, contents=None),
        catalogue=Catalogue(
            storage=Storage(folder="/d/directory", position=None), tokens=None, detectors=None
        ),
        orphans=["/d/detectors/x"],
        warnings=["a torn tail"],
        damage=[
            Defect(path="/d/j.rdj", offset=118, reason="record 14 does not fit its checksum"),
            Defect(path="/d/s.rds", reason="it is gone"),
        ],
    )
    assert not report.whole
    lines = list(to_lines(report))
    assert lines[0] == "/d: DAMAGED, see the end"
    assert lines[1] == f"id {RULE_ID}"
    assert lines[4:7] == [
        "  snapshots  0, 0 bytes",
        "  journal    0 segments with 0 records, 0 bytes",
        "  position   none",
    ]
    assert "  refused    a hole" in lines
    assert "  set aside  snapshot-9.rds.damaged" in lines
    assert lines[-9:] == [
        "orphans: folders of detectors that are not in the catalogue",
        "  /d/detectors/x",
        "",
        "warnings",
        "  a torn tail",
        "",
        "damaged",
        "  /d/j.rdj, offset 118: record 14 does not fit its checksum",
        "  /d/s.rds: it is gone",
    ]


def test_sizes_are_told_in_the_unit_in_which_they_read_best() -> None:
    assert [size(number) for number in (0, 1, 1_023, 1_024, 1_536, 2**20, 5 * 2**40, 2**60)] == [
        *("0 bytes", "1 byte", "1023 bytes", "1.0 KiB", "1.5 KiB", "1.0 MiB", "5.0 TiB", "1048576.0 TiB")
    ]
