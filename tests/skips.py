"""Lists the tests that were skipped and why; fails where a reason is not in expected_skips.txt.

python tests/skips.py RESULTS.xml    reads what pytest --junitxml wrote
"""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

EXPECTED = Path(__file__).with_name("expected_skips.txt")


def main(results: str) -> int:
    """Print every skip; give 1 where one of them is unexpected."""
    lines = EXPECTED.read_text("utf-8").splitlines()
    expected = [line for line in lines if line and not line.startswith("#")]
    unexpected = 0
    cases = list(ET.parse(results).getroot().iter("testcase"))
    skipped = [(case, skip) for case in cases for skip in case.iter("skipped")]
    for case, skip in skipped:
        reason = skip.get("message", "")
        known = any(reason.startswith(start) for start in expected)
        unexpected += not known
        print(
            f"{'skipped' if known else 'NOT EXPECTED'}: {case.get('classname')}::{case.get('name')}: {reason}"
        )
    print(f"{len(cases)} tests, {len(skipped)} skipped, {unexpected} of them unexpectedly")
    if not cases:
        print("no test was run")
    return 1 if unexpected or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
