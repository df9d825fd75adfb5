"""`rule-detector relations`: manages the relations of a detector of a running service."""

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from api.cli.lookup import find_detector
from api.cli.messages import CommandError, counted
from api.cli.options.service_options import service_and_output_options
from api.cli.printing.output import Option, show, tell, value_text, yes_option
from api.cli.recordings.times import iso
from api.cli.rule_files.relations import values_in
from api.cli.things.rules import detector_option
from rule_detector_client import Client, Relation, calls
from rule_detector_client.calls import Tuple
from rule_detector_client.sending import Batches

HEADER: Final = ("name", "tuples", "values in each", "changed at")
_NDJSON: Final = "application/x-ndjson"
_TYPES: Final = {".csv": "text/csv"} | dict.fromkeys([".ndjson", ".jsonl", ".json"], _NDJSON)
FILE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The maximum size of a file, decompressed. By default, a service accepts a quarter of it."""
_CHANGED_AT_ONCE: Final = 2_000
_CHANGED_BYTES: Final = 512 * 1024
"""The maximum number and approximate size of the tuples of one change, whose body is less than a megabyte."""

more_option: Option = click.option(
    "--file", metavar="FILE", help="File with more tuples: NDJSON, or text with a value in each line."
)


@click.group()
def relations() -> None:
    """List and change the relations of a detector of a running service.

    A relation is a set of tuples that conditions look up, as in `known(user, ip)` or `ip in network blocked`.
    """


@relations.command("list")
@detector_option
@service_and_output_options
def list_(*, client: Client, detector: str, output: str) -> None:
    """List the relations, by name."""
    found = client.send(calls.list_relations(find_detector(client, detector).id))
    show(output, {"relations": found}, HEADER, map(_row, found))


@relations.command(name="show")
@click.argument("name")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of tuples to show.  [default: all]")
@detector_option
@service_and_output_options
def show_(*, client: Client, name: str, limit: int | None, detector: str, output: str) -> None:
    """Print the tuples of a relation, one a line.

    The format is CSV, or with -o json NDJSON.
    """
    tuples = islice(client.tuples(find_detector(client, detector).id, name), limit)
    if output == "json":
        for values in tuples:
            click.echo(msgspec.json.encode(values))
        return
    rows = io.StringIO()
    written = csv.writer(rows, lineterminator="\n")
    for values in tuples:
        written.writerow([value if isinstance(value, str) else value_text(value) for value in values])
        click.echo(rows.getvalue(), nl=False)
        rows.seek(0)
        rows.truncate()


@relations.command(
    epilog="""\b
Examples:
  rule-detector relations put blocked blocked.txt --detector shop
  rule-detector relations put owns owns.csv --types string,number --detector shop
"""
)
@click.argument("name")
@click.argument("file")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "ndjson", "text"]),
    help="Format of the file.  [default: by its name, otherwise text with a value in each line]",
)
@click.option("--header", is_flag=True, help="The first line of CSV is a header.")
@click.option("--types", metavar="TYPE,…", help="Types of the columns of CSV: string, number or boolean.")
@detector_option
@service_and_output_options
def put(
    *,
    client: Client,
    name: str,
    file: str,
    form: str | None,
    header: bool,
    types: str | None,
    detector: str,
    output: str,
) -> None:
    """Create a relation from a FILE, or replace it, as one change.

    FILE is CSV, NDJSON with a tuple in each line, or text with a value in each line, without those that begin
    with #; plain or gzipped. - is standard input.
    """
    body, kind = _body(file, form)
    asked = {"header": "true" if header else "", "types": types or ""}
    if kind != "text/csv" and any(asked.values()):
        raise click.UsageError("`--header` and `--types` are for CSV.")
    query = {member: value for member, value in asked.items() if value}
    detector_id = find_detector(client, detector).id
    _changed(output, client.send(calls.put_relation(detector_id, name, body, kind, **query)))


@relations.command(
    epilog="""\b
Examples:
  rule-detector relations add blocked 203.0.113.7 203.0.113.9 --detector shop
  rule-detector relations add owns '["ada", 17]' --detector shop
"""
)
@click.argument("name")
@click.argument("tuples", nargs=-1, metavar="TUPLE…")
@more_option
@detector_option
@service_and_output_options
def add(
    *, client: Client, name: str, tuples: tuple[str, ...], file: str | None, detector: str, output: str
) -> None:
    """Add tuples. A TUPLE is a JSON array; any other text is a tuple of one string.

    More than 2 000 tuples are added in several changes.
    """
    _change(client, (detector, name), "add", _given(tuples, file), output)


@relations.command()
@click.argument("name")
@click.argument("tuples", nargs=-1, metavar="TUPLE…")
@more_option
@detector_option
@service_and_output_options
def remove(
    *, client: Client, name: str, tuples: tuple[str, ...], file: str | None, detector: str, output: str
) -> None:
    """Remove tuples, which are written as for `add`. Removing absent tuples changes nothing."""
    _change(client, (detector, name), "remove", _given(tuples, file), output)


@relations.command()
@click.argument("name")
@detector_option
@yes_option
@service_and_output_options
def delete(*, client: Client, name: str, detector: str, yes: bool, output: str) -> None:
    """Delete a relation. Conditions that use it are then false."""
    detector_id = find_detector(client, detector).id
    if not yes:
        click.confirm(f"Delete the relation `{name}`?", abort=True, err=True)
    tell(output, client.send(calls.delete_relation(detector_id, name)), f"The relation `{name}` is deleted.")


def _change(client: Client, place: tuple[str, str], member: str, tuples: list[Tuple], output: str) -> None:
    detector, name = place
    detector_id = find_detector(client, detector).id
    batches = Batches[Tuple](lambda one: len(msgspec.json.encode(one)), _CHANGED_AT_ONCE, _CHANGED_BYTES)
    full = [some for one in tuples if (some := batches.add(one))]
    for some in [*full, batches.take()]:
        wanted: dict[str, Any] = {member: some}
        changed = client.send(calls.patch_relation(detector_id, name, **wanted))
    _changed(output, changed)


def _given(tuples: tuple[str, ...], file: str | None) -> list[Tuple]:
    """Return the tuples of the command line and of a file. Raises click.UsageError, CommandError."""
    found = [_tuple(text) for text in tuples]
    if file is not None:
        found += [_tuple(line) for _, line in values_in(_text(file))]
    if not found:
        raise click.UsageError("Give a TUPLE or `--file`.")
    return found


def _tuple(text: str) -> Tuple:
    if not text.lstrip().startswith("["):
        return text
    try:
        return msgspec.json.decode(text, type=list[str | int | float | bool])
    except msgspec.DecodeError as error:
        raise click.UsageError(f"`{text}` is no tuple: {str(error).lower()}") from None


def _body(file: str, form: str | None) -> tuple[bytes, str]:
    """Return a body and its content type. Raises CommandError."""
    suffix = Path(file.removesuffix(".gz")).suffix.lower()
    kind = {"csv": "text/csv", "ndjson": _NDJSON}.get(form or "")
    kind = kind or (None if form else _TYPES.get(suffix))
    if kind is not None:
        return _bytes(file), kind
    return b"".join(msgspec.json.encode(value) + b"\n" for _, value in values_in(_text(file))), _NDJSON


def _bytes(file: str) -> bytes:
    """Return the content of a file, decompressed if it is gzipped. Raises CommandError."""
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as opened:
            found = _bounded(file, opened.read)
        if found.startswith(b"\x1f\x8b"):
            with gzip.open(io.BytesIO(found)) as inflated:
                found = _bounded(file, inflated.read)
    except (OSError, EOFError, zlib.error) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise CommandError(f"{file}: {reason}") from None
    return found


def _bounded(file: str, read: Callable[[int], bytes]) -> bytes:
    """Return all that is left to read. Raises CommandError if that is more than a relation may have."""
    found = read(FILE_BYTES_MAX + 1)
    if len(found) > FILE_BYTES_MAX:
        raise CommandError(f"{file}: it has more than {FILE_BYTES_MAX >> 20} MiB")
    return found


def _text(file: str) -> str:
    try:
        return _bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"{file}: byte {error.start} is not valid UTF-8") from None


def _changed(output: str, relation: Relation) -> None:
    tell(output, relation, f"The relation `{relation.name}` has {counted(relation.tuples, 'tuple')}.")


def _row(relation: Relation) -> tuple[str, ...]:
    arity = "" if relation.arity is None else str(relation.arity)
    return value_text(relation.name), str(relation.tuples), arity, iso(relation.changed_ms * 1_000)
