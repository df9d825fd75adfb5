"""`rule-detector replay`: recorded events sent to a running service."""

from pathlib import Path

import click
from rich.console import Console

from api.cli.client.detectors import add_rules, find_detector, list_rules
from api.cli.client.service import Service, ServiceError
from api.cli.client.token_options import token_options
from api.cli.failures import fail
from api.cli.reading_options import reading_options
from api.cli.recordings.reading import Reading
from api.cli.replaying.run import Replay
from api.cli.rule_files import RuleFileError, read_rules


@click.command(
    epilog="""\b
Examples:
  rule-detector replay events.ndjson.gz --detector shop --token rd_…
  rule-detector replay log.csv --detector shop --time-field when --rules shop.yaml
  zcat old/*.gz | rule-detector replay - --detector 0f3c…

Exit status: 0 success, 1 something was refused or could not be read, 2 wrong usage.
"""
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "--url",
    default="http://127.0.0.1:8080",
    envvar="RULE_DETECTOR_URL",
    help="Address of the service.  [env RULE_DETECTOR_URL; default http://127.0.0.1:8080]",
)
@token_options
@click.option("--detector", required=True, metavar="ID|NAME", help="Detector that evaluates the events.")
@click.option("--create", is_flag=True, help="Create the detector if none has this id or name.")
@reading_options
@click.option(
    "--rules",
    "rule_files",
    metavar="FILE",
    multiple=True,
    help="Add the rules of this file first (`name: condition`, YAML or JSON), except those that the detector "
    "already has. Can be repeated.",
)
def replay(
    *,
    files: tuple[str, ...],
    url: str,
    token: str,
    detector: str,
    create: bool,
    reading: Reading,
    rule_files: tuple[str, ...],
) -> None:
    """Send recorded events to a running service and print which rules fire.

    Each FILE is NDJSON (one JSON object a line), CSV with a header line, or with --pattern lines of text;
    plain or gzipped. - is standard input. Events are sent in batches, in the order of the file. A detector's
    clock never runs backwards, so sort the events by time and replay old recordings on a new detector
    (--create).

    For each rule, the output says how often it fired, and when and where first. Standard input may be a
    live pipe: its events are sent as they arrive, and each rule is named when it first fires.

    In CSV, a column is a number or a boolean if all its cells in the first megabyte are, otherwise text; the
    command prints its decision. Empty cells count as missing fields.

    Lost requests are retried for up to a minute, even across a restart of the service, and no event is
    evaluated twice. Refused events are counted and reported. A line that is not an event ends the replay.
    """
    for path in files:
        if path != "-" and not Path(path).exists():
            fail(f"{path}: no such file")
    try:
        conditions = [condition for path in rule_files for condition in read_rules(path)]
        with Service(url, token) as service:
            chosen = find_detector(service, detector, create=create)
            add_rules(service, chosen.id, conditions)
            if not list_rules(service, chosen.id):
                fail(f"the detector `{chosen.name}` has no rules, so nothing can fire; add some with --rules")
            run = Replay(service, chosen.id, Console())
            failure = run.run(files, reading)
            run.show()
    except (ServiceError, RuleFileError) as error:
        fail(str(error))
    refusals = run.report.refusals()
    if failure or refusals:
        fail("\n".join([*refusals, *([failure] if failure else [])]))
