"""`rule-detector check`: conditions parsed and shown in both forms, or refused with reasons."""

import re
import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from api.commands.failures import fail
from api.commands.rule_files import RuleFileError, entries_of
from engine.language.diagnostics import Refusal
from engine.language.document import condition_to_document
from engine.language.limits import DEFAULT_LIMITS
from engine.language.parser import parse
from engine.language.printer import format as canonical

MEMBERS: Final = frozenset(
    {
        *("leaf", "ref", "in_relation", "all", "any", "not", "once", "historically", "since"),
        *("once_within", "historically_for", "since_within", "keyed"),
    }
)

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
def check(file: str) -> None:
    """Parse conditions and print each in both of its forms: canonical text and JSON.

    FILE holds rules (`name: condition`, in YAML or JSON, by its name .yaml, .yml or .json), or conditions as
    text, one to a line; indent the lines that go on with the one before. Without FILE, or with -, text
    is read from standard input.

    What cannot be parsed is said on standard error, with its place, and the exit status is 1.
    """
    if file == "-" and sys.stdin.isatty():
        click.echo("Reading conditions, one to a line; end with Ctrl-D.", err=True)
    try:
        found = list(named_conditions(_read(file), file).items())
    except RuleFileError as error:
        fail(str(error))
    if not found:
        fail(f"{_shown(file)}: there is no condition in it")
    results = [_report(name, text) for name, text in found]
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
    return isinstance(document, dict) and len(document) == 1 and document.keys() <= MEMBERS


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


def _report(name: str, text: str) -> bool:
    """Print one condition or its defects; tell whether it was well."""
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
    return True
