"""`rule-detector test`: runs the tests in rules files."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import msgspec

from api.cli.messages import CommandError, counted
from api.cli.printing.output import output_option
from api.cli.printing.terminal import on_one_line
from api.cli.rule_files.reading import files_in, read_rules_file
from api.cli.trying.rule_tests import Outcome, run_tests
from engine.language.diagnostics import printable


@click.command(
    epilog="""\b
Examples:
  rule-detector test rules.yaml
  rule-detector test detections/ --junit report.xml

Exit status: 0 all tests passed, 1 a test failed or there is none, 2 wrong usage.
"""
)
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR…", type=click.Path())
@click.option(
    "--junit",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a report in the XML of JUnit.",
)
@click.option(
    "-j",
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    help="Processes that run tests.  [default: one for each core, if there are many tests]",
)
@output_option
def test(paths: tuple[str, ...], junit: Path | None, jobs: int | None, output: str) -> None:
    """Run the tests of rules, without a service.

    Takes rules files, and all .yaml and .yml files of folders. A rule has its tests under `tests`, each with
    `events` (a list of events, or the path of a recording beside the file) and `fires`: the numbers of all
    events at which the rule fires, or objects with `line` and the expected `keys`, `labels` or `suppressed`.
    A timed rule may also fire at a `time`, up to the time `until` after the last event.

    Each failure shows what was expected, what happened, and why.
    """
    files = [read_rules_file(str(path)) for path in files_in(paths)]
    outcomes = list(run_tests(files, jobs))
    failed = [outcome for outcome in outcomes if outcome.failures]
    if junit is not None:
        try:
            junit.write_bytes(junit_xml(outcomes))
        except OSError as error:
            raise CommandError(f"{junit}: {(error.strerror or str(error)).lower()}") from None
    for file in files:
        without = [name for name, rule in file.rules.items() if not rule.tests]
        if len(without) == len(file.rules):
            click.echo(f"{file.path}: no tests", err=True)
        elif without:
            click.echo(f"{file.path}: {counted(len(without), 'rule')} without a test", err=True)
    if output == "json":
        tests = [dict(outcome._asdict(), passed=not outcome.failures) for outcome in outcomes]
        click.echo(msgspec.json.encode({"tests": tests, "failed": len(failed)}))
    else:
        for outcome in failed:
            click.echo(f"{outcome.place}: `{on_one_line(outcome.rule)}`, test {on_one_line(outcome.test)}")
            for text in outcome.failures:
                click.echo("\n".join(f"  {on_one_line(line)}" for line in text.split("\n")))
    if not outcomes:
        raise CommandError("there are no tests")
    if failed:
        raise CommandError(f"{len(failed)} of {counted(len(outcomes), 'test')} failed")
    if output != "json":
        click.echo(f"{counted(len(outcomes), 'test')} passed")


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
