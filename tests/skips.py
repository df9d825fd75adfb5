"""Lists the tests that were skipped, why, and what is therefore untested; fails if a reason is not expected.

python tests/skips.py RESULTS.xml…    reads what pytest --junitxml wrote

A line of expected_skips.txt is the beginning of a reason, ` => `, and what such a skip leaves untested.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

EXPECTED = Path(__file__).with_name("expected_skips.txt")


def main(*results: str) -> int:
    """Print every skip; give 1 where one of them is unexpected."""
    lines = EXPECTED.read_text("utf-8").splitlines()
    expected = dict(line.split(" => ") for line in lines if line and not line.startswith("#"))
    unexpected = 0
    untested: set[str] = set()
    cases = [case for path in results for case in ET.parse(path).getroot().iter("testcase")]
    skipped = [(case, skip) for case in cases for skip in case.iter("skipped")]
    for case, skip in skipped:
        reason = skip.get("message", "")
        known = [what for start, what in expected.items() if reason.startswith(start)]
        unexpected += not known
        untested.update(known)
        print(
            f"{'skipped' if known else 'NOT EXPECTED'}: {case.get('classname')}::{case.get('name')}: {reason}"
        )
    for what in sorted(untested):
        print(f"left untested: {what}")
    print(f"{len(cases)} tests, {len(skipped)} skipped, {unexpected} of them unexpectedly")
    if not cases:
        print("no test was run")
    return 1 if unexpected or not cases else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
