"""`rule-detector replay`: sends recorded events to a running service."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from api.cli.lookup import add_rules, find_detector, with_id_or_name
from api.cli.messages import CommandError
from api.cli.options.reading_options import reading_options
from api.cli.options.service_options import service_options
from api.cli.options.values import lateness_option, vars_option
from api.cli.recordings.reading import ReadingOptions
from api.cli.recordings.sorting import Sorter
from api.cli.replaying.replay import Replay
from api.cli.rule_files.reading import read_rules
from rule_detector_client import Client


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
@service_options
@click.option("--detector", required=True, metavar="ID|NAME", help="Detector that evaluates the events.")
@click.option("--create", is_flag=True, help="Create the detector if none has this id or name.")
@reading_options
@lateness_option("the events are sent in the order of the files")
@vars_option
@click.option(
    "--rules",
    "rule_files",
    metavar="FILE",
    multiple=True,
    help="Add the rules of this file first (`name: condition`, YAML or JSON), except those that the detector "
    "already has. Can be repeated.",
)
@click.option("--keys", is_flag=True, help="Count the firings of each rule by key, which takes longer.")
def replay(
    *,
    files: tuple[str, ...],
    client: Client,
    detector: str,
    create: bool,
    reading: ReadingOptions,
    late_us_max: int | None,
    variables: dict[str, Any] | None,
    rule_files: tuple[str, ...],
    keys: bool,
) -> None:
    """Send recorded events to a running service and print which rules fire.

    Each FILE is NDJSON (one JSON object a line), CSV with a header line, or with --pattern lines of text;
    plain or gzipped. - is standard input. Events are sent in batches, in the order of the files. A detector's
    clock never runs backwards, so sort the events by time (--max-late) and replay old recordings on a new
    detector (--create).

    For each rule, the output says how often it fired, and when and where first. Standard input may be a
    live pipe: its events are sent as they arrive, and each rule is printed when it first fires. With --keys,
    the table has a row for each key, as with `try`.

    In CSV, commas, semicolons or tabs separate the cells. A column is a number or a boolean if all its cells
    in the first megabyte are, otherwise text; the command prints the types. Empty cells and NaN count as
    missing fields.

    Lost requests are retried for up to a minute, even across a restart of the service, and no event is
    evaluated twice. Refused events are counted and reported. Lines without an event are skipped and counted,
    and the first three of each kind are shown, unless --strict is given.
    """
    for path in files:
        if path != "-" and not Path(path).exists():
            raise CommandError(f"{path}: no such file")
    conditions = [condition for path in rule_files for condition in read_rules(path)]
    if create and not conditions and with_id_or_name(list(client.detectors()), detector, "detectors") is None:
        raise CommandError(
            f"a new detector `{detector}` has no rules, so nothing can fire; add some with --rules"
        )
    chosen = find_detector(client, detector, create=create)
    add_rules(client, chosen.id, conditions)
    if next(client.rules(chosen.id), None) is None:
        raise CommandError(
            f"the detector `{chosen.name}` has no rules, so nothing can fire; add some with --rules"
        )
    sorter = None if late_us_max is None else Sorter(late_us_max)
    run = Replay(client, chosen.id, Console(), sorter=sorter, variables=variables, keys=keys)
    try:
        failure = run.run(files, reading)
    except KeyboardInterrupt:
        # Ctrl-C is the usual end of a live pipe.
        run.show()
        raise
    run.show()
    refusals = run.report.refusals()
    if failure or refusals:
        raise CommandError("\n".join([*refusals, failure or ""]))
