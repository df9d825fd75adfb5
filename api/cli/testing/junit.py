"""The outcomes of tests in the XML format of JUnit, which build servers read."""

from collections.abc import Sequence
from itertools import groupby
from xml.etree import ElementTree as ET

from api.cli.testing.running import Outcome
from engine.language.diagnostics import printable


def junit_xml(outcomes: Sequence[Outcome]) -> bytes:
    """Return the report, with a suite for each file."""
    root = ET.Element("testsuites", _counts(outcomes))
    for file, each in groupby(outcomes, lambda outcome: outcome.file):
        of_file = list(each)
        counts = {"name": printable(file), **_counts(of_file)}
        suite = ET.SubElement(root, "testsuite", counts)
        for outcome in of_file:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=printable(file),
                name=printable(f"{outcome.rule}, test {outcome.test}"),
                time=f"{outcome.seconds:.3f}",
            )
            if outcome.failures:
                failure = ET.SubElement(case, "failure", message=printable(outcome.failures[0]))
                lines = [outcome.place, *outcome.failures]
                failure.text = "\n".join(printable(line) for text in lines for line in text.split("\n"))
    report: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return report + b"\n"


def _counts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    return {
        "tests": str(len(outcomes)),
        "failures": str(sum(bool(outcome.failures) for outcome in outcomes)),
        "time": f"{sum(outcome.seconds for outcome in outcomes):.3f}",
    }
