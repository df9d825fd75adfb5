"""`rule-detector try`: runs rules over recorded events in this process, without a service."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final

import click
from rich.console import Console

from api.cli.messages import CommandError, counted, duration_at_least, warn
from api.cli.options.reading_options import reading_options
from api.cli.options.values import lateness_option, vars_option
from api.cli.printing.output import print_table
from api.cli.recordings.reading import ReadingOptions, RecordedEvent
from api.cli.recordings.sorting import Sorter
from api.cli.replaying.feeding import Feeding, are_files
from api.cli.rule_files.reading import NamedCondition, read_rules, read_rules_file
from api.cli.trying import output
from api.cli.trying.mismatches import Mismatches
from api.cli.trying.trial import Trial, stored
from engine.language.diagnostics import nearest, quoted

_NAMES_SHOWN: Final = 10


@click.command(
    "try",
    epilog="""\b
Examples:
  rule-detector try rules.yaml events.ndjson.gz
  rule-detector try rules.yaml auth.log --time-zone Europe/Berlin \\
    --pattern '^(?P<time>.{15}) .* password for (?:invalid user )?(?P<user>.*) from (?P<ip>\\S+) port'
  rule-detector try rules.yaml cloudtrail/*.json.gz --records Records --time-field eventTime
  tail -f events.ndjson | rule-detector try rules.yaml -
  rule-detector try new.yaml events.ndjson --against old.yaml
  rule-detector try rules.yaml events.csv -o json | jq .keys.ip
  rule-detector try rules.yaml events.ndjson --explain "failed twice" --line 17

Exit status: 0 success, 1 something could not be read or was refused, 2 wrong usage.
""",
)
@click.argument("rules", metavar="RULES", type=click.Path(dir_okay=False))
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@reading_options
@lateness_option("files are sorted as far as some ten thousand waiting events allow; a pipe is not sorted")
@vars_option
@click.option(
    "--against", metavar="OLD", help="Compare with an older version of the rules: show where only one fires."
)
@click.option(
    "--show", "shown_max", metavar="N", default=10, show_default=True, help="Firings to show of each rule."
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(output.FORMS),
    default="table",
    help="Format of the firings; all but table show every one.  [default: table]",
)
@click.option("--to", "target", metavar="FILE", help="File for the firings, instead of standard output.")
@click.option("--explain", "explained", metavar="RULE", help="Explain why this rule fires at --line, or not.")
@click.option("--line", "at_line", metavar="N", type=click.IntRange(min=1), help="The line of that event.")
def trial(
    *,
    rules: str,
    files: tuple[str, ...],
    reading: ReadingOptions,
    late_us_max: int | None,
    variables: dict[str, Any] | None,
    against: str | None,
    shown_max: int,
    form: str,
    target: str | None,
    explained: str | None,
    at_line: int | None,
) -> None:
    """Run RULES over recorded events, without a service, and show when, for which keys and where each fires.

    RULES is a rules file (`name: condition`, YAML or JSON). Each FILE is NDJSON, CSV with a header line, or
    with --pattern lines of text; plain or gzipped, no line longer than 16 MiB. - is standard input, and may
    be a live pipe: firings are shown as they happen. Unreadable lines are skipped and counted.

    The events of several files are merged by time, and unsorted files are sorted. A pipe is read unsorted,
    after the files before it, unless --max-late says how long its events may wait.

    Each firing has its time, the keys of the rule (as in `per ip`) with their values, and the line of the
    event. At the end, a table shows how often each rule fired for each key. Warnings show where rules do not
    fit the events, such as a field that no event has.

    With --explain and --line, the output explains one rule at one event: which parts of the condition are
    true, since which event, and until when.
    """
    if (explained is None) != (at_line is None):
        raise click.UsageError("`--explain` and `--line` go together.")
    file = read_rules_file(rules)
    new = file.conditions()
    made = partial(Trial, relations=stored(file.relations), variables=variables)
    old = None if against is None else read_rules(against)
    if form == "parquet" and target is None and explained is None:
        raise click.UsageError("`-o parquet` needs a file: `--to FILE`.")
    sorter = Sorter(late_us_max) if late_us_max is not None or are_files(files) else None
    if explained is not None and at_line is not None:
        feeding = Feeding(reading, Console(stderr=True), sorter)
        _explain(new, explained, at_line, files, feeding, against=old, made=made)
        return
    # If programs read the firings from standard output, nothing else may be printed there.
    console = Console(stderr=form != "table" and target is None)
    mismatches = Mismatches(new, variables, file.relations)
    with _output(form, target, shown_max, compared=old is not None) as tell:
        detailed = form == "json" and old is None
        run = made(new, tell, against=old, detailed=detailed)

        def take(batch: list[RecordedEvent]) -> None:
            mismatches.add_all(event.fields for event in batch)
            run.evaluate(batch)

        interrupted = False
        try:
            failure = Feeding(reading, console, sorter).feed(files, take)
        except KeyboardInterrupt:
            # Ctrl-C is the usual end of a live pipe.
            failure, interrupted = None, True
        if failure and not run.events:
            # The file for the firings is left unchanged.
            raise CommandError(failure)
    _report(run, mismatches, console, compared=old is not None)
    refusals = run.refusals()
    if run.late:
        late_us = max(run.late_us_most, sorter.late_us_most if sorter else 0)
        said = _late_events(run, late_us)
        if run.late_refused:
            refusals.append(said)
        else:
            warn(said)
    if failure or refusals:
        raise CommandError("\n".join([*refusals, failure or ""]))
    if interrupted:
        raise KeyboardInterrupt


def _report(run: Trial, mismatches: Mismatches, console: Console, *, compared: bool) -> None:
    """Print how often each rule fired for each key, and the warnings."""
    tallies = run.tallies.values()
    if compared:
        header = ("rule", "only new", "only old", "both", "first at", "last at")
        print_table(header, [output.summary(tally, compared=True) for tally in tallies], console)
    else:
        rows = [row for tally in tallies for row in output.rows_by_key(tally)]
        print_table(("rule", "key", "fired", "first at", "last at"), rows, console)
    for line in [*mismatches.lines(), *_warnings(run)]:
        warn(line)


def _explain(
    rules: Sequence[NamedCondition],
    name: str,
    line: int,
    files: Sequence[str],
    feeding: Feeding,
    *,
    against: Sequence[NamedCondition] | None,
    made: Callable[..., Trial],
) -> None:
    """Print why a rule fires at the event of a line, or not, in both versions if there are two."""
    found = [rule for rule in rules if rule.name == name]
    old = None if against is None else [rule for rule in against if rule.name == name]
    if not (found or old):
        near = nearest(name, [rule.name for rule in rules])
        there = ", ".join(quoted(rule.name) for rule in rules[:_NAMES_SHOWN])
        raise CommandError(
            f"no rule is named {quoted(name)}"
            + (f"; did you mean {quoted(near)}?" if near else f": there are {there}")
        )
    # Rules do not influence each other, so the others need not run.
    run = made(found, lambda _: None, against=old)
    shown: list[str] = []

    def take(batch: list[RecordedEvent]) -> None:
        numbers = [number for number, event in enumerate(batch) if event.line == line]
        if numbers and not shown:
            run.evaluate(batch[: numbers[0]])
            shown.extend(run.explain(batch[numbers[0]]))
        elif not shown:
            run.evaluate(batch)

    failure = feeding.feed(files, take)
    for text in shown:
        click.echo(text)
    if not shown:
        raise CommandError(failure or f"no event is at line {line}")


def _output(
    form: str, target: str | None, shown_max: int, *, compared: bool
) -> AbstractContextManager[output.Take]:
    """Return the output of a form, to a file or to standard output. Raises CommandError when entered."""
    if target is not None:
        return output.file_output(form, target, shown_max, compared=compared)
    return nullcontext(output.form_output(form, click.echo, shown_max, compared=compared))


def _warnings(run: Trial) -> Iterator[str]:
    if not run.events:
        yield "there are no events"
        return
    for tally in run.tallies.values():
        if tally.times == run.events:
            yield f"{tally.name}: it fired at every event"
        elif not any(tally.fired.values()):
            yield f"{tally.name}: it never fired"


def _late_events(run: Trial, late_us: int) -> str:
    """Return a line with the number of late events, their fates, and the option that sorts them."""
    evaluated = run.late - run.late_refused
    fates = [
        *([f"{evaluated} evaluated at the time of the latest one before"] if evaluated else []),
        *([f"{run.late_refused} refused"] if run.late_refused else []),
    ]
    most = duration_at_least(late_us)
    late = counted(run.late, "event")
    return f"{late} came late, by up to {most}: {', '.join(fates)}; `--max-late {most}` sorts them"
