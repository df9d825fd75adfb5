"""What the console's scripts decide without a page: run by the JavaScript engine of playwright."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright._impl._driver import compute_driver_executable

from api.console import pages

SHARED = Path(pages.__file__).parent / "static/shared"


def evaluated(script: str, expression: str) -> Any:
    """Give the value of an expression in which `it` is a script of the console."""
    node, _ = compute_driver_executable()
    imported = f"import * as it from {json.dumps((SHARED / script).as_uri())};"
    program = f"{imported} console.log(JSON.stringify({expression}))"
    command = [node, "--input-type=module", "-e", program]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def moments(*numbers: int) -> list[dict[str, int]]:
    return [{"number": number} for number in numbers]


@pytest.mark.parametrize(
    ("kept", "come", "then", "added"),
    [
        ([], [7, 8], [7, 8], [7, 8]),
        ([7, 8], [], [7, 8], []),
        # What was seen before a reconnection comes again.
        ([7, 8], [8, 9], [7, 8, 9], [9]),
        # The newest are kept.
        ([7, 8, 9], [10], [8, 9, 10], [10]),
        ([], [1, 2, 3, 4, 5], [3, 4, 5], [1, 2, 3, 4, 5]),
        # It has begun anew, after moments that nobody saw.
        ([7, 8], [10, 11], [10, 11], [10, 11]),
    ],
)
def test_a_timeline_keeps_its_newest_moments_without_gaps(
    kept: list[int], come: list[int], then: list[int], added: list[int]
) -> None:
    given = f"{json.dumps(moments(*kept))}, {json.dumps(moments(*come))}"
    joined = evaluated("moments.js", f"it.joined({given}, 3)")
    assert joined == {"kept": moments(*then), "added": moments(*added)}


def test_numbers_and_times_are_written_as_people_read_them() -> None:
    shown = evaluated(
        "format.js",
        "[it.count(1, 'event'), it.count(12345, 'event'), it.bytes(1536), it.bytes(3 * 2 ** 30),"
        " it.duration(-999), it.duration(90_061_000), it.time(1709542800000), it.time(1e20)]",
    )
    assert shown == [
        "1 event",
        "12,345 events",
        "1.5 KiB",
        "3 GiB",
        "-999 ms",
        "1 d 1 h",
        "2024-03-04 09:00:00Z",
        "100000000000000000000",
    ]
