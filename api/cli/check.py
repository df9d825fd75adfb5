"""`rule-detector check`: conditions parsed and shown in both forms, or refused with reasons."""

import re
import sys
from itertools import islice
from pathlib import Path
from typing import Final

import click
import msgspec

from api.cli.client.rule_files import RuleFileError, entries_of
from api.cli.failures import fail
from api.cli.recorded.reading import Reading, Recording, RecordingError
from engine.language.diagnostics import Refusal
from engine.language.json.writer import condition_to_document
from engine.language.limits import DEFAULT_LIMITS
from engine.language.operators import FORMS
from engine.language.samples import Sample
from engine.language.text.parser import parse
from engine.language.text.printer import format as canonical
from engine.language.warnings import condition_warnings

SAMPLE_EVENTS: Final = 100_000
"""How many events of a recording conditions are held against."""

_CONTINUED: Final = re.compile(r"[ \t)\]}]|(and|or|since)\b")
"""How a line begins that goes on with the condition of the line before."""


@click.command(
    epilog="""\b
Examples:
  rule-detector check rules.yaml
  echo 'per user.id (once within 10m ok == false) and amount > 1000' | rule-detector check
"""
)
@click.argument("file", default="-", metavar="[FILE|-]", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--events",
    "recordings",
    metavar="FILE",
    multiple=True,
    help="Recorded events that the conditions are meant for, NDJSON or CSV: warn of facts that none of them "
    f"has, and of comparisons whose types never meet. The first {SAMPLE_EVENTS} are read.",
)
@click.option(
    "--relation",
    "relations",
    metavar="NAME",
    multiple=True,
    help="A relation that is stored or sent, so that no warning is given about it.",
)
def check(file: str, recordings: tuple[str, ...], relations: tuple[str, ...]) -> None:
    """Parse conditions and print each in both of its forms: canonical text and JSON.

    FILE holds rules (`name: condition`, in YAML or JSON, by its name .yaml, .yml or .json), or conditions as
    text, one to a line; indent the lines that go on with the one before. Without FILE, or with -, text
    is read from standard input.

    What cannot be parsed is said on standard error, with its place, and the exit status is 1. Warnings are
    said there too: a condition can be valid and still never be true.
    """
    if file == "-" and sys.stdin.isatty():
        click.echo("Reading conditions, one to a line; end with Ctrl-D.", err=True)
    try:
        found = list(named_conditions(_read(file), file).items())
        sample = _sample(recordings)
    except (RuleFileError, RecordingError) as error:
        fail(str(error))
    if not found:
        fail(f"{_shown(file)}: there is no condition in it")
    results = [_report(name, text, sample, relations) for name, text in found]
    if not all(results):
        refused = results.count(False)
        fail(f"{refused} of {len(results)} condition{'s' if len(results) > 1 else ''} refused")


def named_conditions(text: str, file: str) -> dict[str, str]:
    """Give the conditions of a file, each under its rule's name or its line. Raises RuleFileError."""
    if file.lower().endswith((".yaml", ".yml", ".json")) and not _is_condition(text):
        return entries_of(text, file)
    conditions: dict[str, str] = {}
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        blank = not line.strip() or line.lstrip().startswith("#")
        if not start and blank:
            continue
        if start and (blank or _CONTINUED.match(line)):
            # Blank lines and comments are kept, so that lines within the condition keep their numbers.
            conditions[f"line {start}"] += "\n" + line
        else:
            start = number
            conditions[f"line {start}"] = line
    return conditions


def _is_condition(text: str) -> bool:
    """Tell one condition as JSON from rules as JSON: it has a single member, named as a condition's."""
    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and len(document) == 1 and document.keys() <= FORMS.keys()


def _read(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fail(f"{_shown(file)}: byte {error.start} is not valid UTF-8")
    except OSError as error:
        fail(f"{file}: {(error.strerror or str(error)).lower()}")


def _shown(file: str) -> str:
    return "standard input" if file == "-" else file


def _sample(recordings: tuple[str, ...]) -> Sample | None:
    """Give what is known of the events in these files. Raises RecordingError."""
    if not recordings:
        return None
    sample = Sample()
    for path in recordings:
        reading = Reading(needs_time=False, tell=lambda said: click.echo(said, err=True))
        with Recording(path, sys.stdin.buffer, reading) as recording:
            for event in islice(recording.events(), SAMPLE_EVENTS):
                sample.add(msgspec.json.decode(event.fields))
    return sample


def _report(name: str, text: str, sample: Sample | None, relations: tuple[str, ...]) -> bool:
    """Print one condition with what to look at again, or its defects; tell whether it is valid."""
    try:
        condition = parse(text, DEFAULT_LIMITS)
    except Refusal as refusal:
        click.echo(f"{name}: refused", err=True)
        for entry in refusal.entries:
            first, *rest = entry.message.splitlines()
            click.echo("\n".join([f"  {entry.code} {first}", *(f"  {line}" for line in rest)]), err=True)
        return False
    document = msgspec.json.encode(condition_to_document(condition)).decode()
    click.echo(f"{name}:\n  text  {canonical(condition)}\n  json  {document}")
    for warning in condition_warnings(condition, sample, relations):
        click.echo(f"{name}: warning: {warning.text}", err=True)
    return True
