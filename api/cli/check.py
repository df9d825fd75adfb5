"""`rule-detector check`: parses conditions and prints them in both forms, or their defects."""

import json
import sys
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from itertools import islice
from textwrap import indent
from typing import Final

import click
import msgspec

from api.cli.messages import CommandError, counted, warn
from api.cli.printing.terminal import on_one_line
from api.cli.recordings.reading import ReadingOptions, Recording
from api.cli.rule_files.reading import holds_rules, line_conditions, read_text, rules_file_of
from engine import Detector
from engine.evaluation.rule_book.meanings import meaning_of
from engine.evaluation.rule_book.rule_messages import doubts
from engine.language.condition import Condition
from engine.language.diagnostics import Refusal, quoted
from engine.language.hints.samples import NAMES_MAX, Sample
from engine.language.hints.warnings import condition_warnings
from engine.language.json.writer import condition_to_document
from engine.language.text.parser import parse
from engine.language.text.printer import format as canonical

SAMPLE_EVENTS: Final = 100_000
"""The number of events of a recording that are compared with the conditions."""


def _show_schema(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from api.cli.rule_files.schema import rules_file_schema  # noqa: PLC0415 -- few need it

        click.echo(json.dumps(rules_file_schema(), indent=2, allow_nan=False))
        ctx.exit()


@click.command(
    epilog="""\b
Examples:
  rule-detector check rules.yaml
  rule-detector check --schema > rules.schema.json
  echo 'per user.id (once within 10m ok == false) and amount > 1000' | rule-detector check
"""
)
@click.argument("file", default="-", metavar="[FILE|-]", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--events",
    "recordings",
    metavar="FILE",
    multiple=True,
    help="Recorded events (NDJSON or CSV) to compare with: warn about fields that no event has and "
    f"comparisons whose types never match. Reads the first {SAMPLE_EVENTS} events. Can be repeated.",
)
@click.option(
    "--relation",
    "relations",
    metavar="NAME",
    multiple=True,
    help="Name of a relation that exists, so that conditions may use it without a warning. Can be repeated.",
)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_schema,
    help="Print the JSON Schema of rules files, with which editors complete and check them, and exit.",
)
@click.option("--code", is_flag=True, help="Also print the Python code that evaluates each condition.")
def check(file: str, recordings: tuple[str, ...], relations: tuple[str, ...], *, code: bool) -> None:
    """Check conditions without a service, and print each as canonical text and as JSON.

    A FILE named .yaml, .yml or .json is a rules file. Any other FILE holds conditions as text, one a line,
    with indented continuation lines. Without FILE, or with -, text is read from standard input.

    Defects are printed on standard error with line and column, and the exit status is 1. Warnings are
    printed there, too: a valid condition may still never be true.
    """
    if file == "-" and sys.stdin.isatty():
        click.echo("Reading conditions, one a line; end with Ctrl-D.", err=True)
    text = read_text(file)
    rules = rules_file_of(text, file) if holds_rules(text, file) else None
    found: Mapping[str, Callable[[], Condition]]
    if rules is None:
        found = {name: partial(parse, line) for name, line in line_conditions(text).items()}
    else:
        relations = (*relations, *rules.relations)
        found = {name: partial(rules.condition, name) for name in rules.rules}
    sample = _sample(recordings)
    if not found:
        raise CommandError(f"{'standard input' if file == '-' else file}: no condition in it")
    refused, first = 0, dict[Hashable, str]()
    for name, read in found.items():
        shown = on_one_line(name)
        condition = _printed(shown, read, code=code)
        if condition is None:
            refused += 1
            continue
        warnings = [one.text for one in condition_warnings(condition, sample, relations)]
        # A shadow rule may be a copy of another.
        if rules is not None and rules.rules[name].shadow is not True:
            equal = first.setdefault(meaning_of(condition), name)
            if equal != name:
                said = f"the condition is equal to that of the rule {quoted(equal)}"
                warnings.append(f"{said}, up to the order of its parts; remove one of the two")
        place = shown if rules is None else f"{on_one_line(rules.place(name))}: {shown}"
        for warning in [*warnings, *doubts(condition, relations)]:
            click.echo(f"{place}: warning: {warning}", err=True)
    if refused:
        is_other = rules is None and file != "-" and refused == len(found)
        hint = "; rules with names stand in a file named .yaml, .yml or .json" if is_other else ""
        raise CommandError(f"{refused} of {counted(len(found), 'condition')} refused{hint}")


def _sample(recordings: tuple[str, ...]) -> Sample | None:
    """Return the fields and types of the events in files; None without files. Raises RecordingError."""
    if not recordings:
        return None
    sample = Sample()
    for path in recordings:
        reading = ReadingOptions(needs_time=False, tell=partial(click.echo, err=True))
        with Recording(path, sys.stdin.buffer, reading) as recording:
            for event in islice(recording.events(), SAMPLE_EVENTS):
                sample.add(event.fields)
    if sample.overflows:
        warn(f"the events have more than {NAMES_MAX} fields, so the conditions are not compared with them")
    return sample


def _printed(name: str, read: Callable[[], Condition], *, code: bool) -> Condition | None:
    """Print a condition and return it; or print its defects and return None."""
    try:
        condition = read()
    except Refusal as refusal:
        click.echo(f"{name}: refused", err=True)
        for entry in refusal.entries:
            first, *rest = entry.message.splitlines()
            click.echo("\n".join([f"  {entry.code} {first}", *(f"  {line}" for line in rest)]), err=True)
        return None
    document = msgspec.json.encode(condition_to_document(condition)).decode()
    click.echo(f"{name}:\n  text  {canonical(condition)}\n  json  {document}")
    if code:
        detector = Detector()
        detector.add_rule("code", condition)
        click.echo(indent(f"code\n{detector.code()}", "  "))
    return condition
