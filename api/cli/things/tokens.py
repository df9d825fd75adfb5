"""`rule-detector tokens` and `changes`: the tokens and the changes log of a running service."""

import re
import time
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Final, Literal

import click

from api.cli.lookup import detector_among, find_detector
from api.cli.options.service_options import service_and_output_options
from api.cli.options.values import duration_us
from api.cli.printing.output import show, tell, yes_option
from api.cli.recordings.times import iso
from rule_detector_client import Client, ListedToken, LoggedChange, TokenBounds, calls

_NAME_CHARS_MAX: Final = 255
_DETECTORS_SHOWN: Final = 3
_ID: Final = re.compile("[0-9a-f]{32}")
_LISTED: Final = (
    "id",
    "name",
    "ends in",
    "scopes",
    "detectors",
    "events/s",
    "expires at",
    "created at",
    "used at",
)


@click.group()
def tokens() -> None:
    """List, create and revoke the tokens of a running service."""


@tokens.command("list")
@service_and_output_options
def list_(*, client: Client, output: str) -> None:
    """List the tokens without their secrets, in order of creation.

    The time of the last use is accurate to about a minute, and may be lost when the service restarts.
    """
    found = client.send(calls.list_tokens())
    names: Mapping[str, str] = {}
    if output == "table" and any(one.detectors for one in found):
        names = {detector.id: detector.name for detector in client.detectors()}
    rows = (
        (
            *(one.id, one.name, one.hint, "all" if one.scopes is None else ", ".join(one.scopes)),
            *(_detectors(one, names), "" if one.events_per_s is None else f"{one.events_per_s:g}"),
            *(_time(one.expires_ms), _time(one.created_ms), _time(one.used_ms)),
        )
        for one in found
    )
    show(output, {"tokens": found}, _LISTED, rows)


def _finite(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and not isfinite(value):
        raise click.BadParameter(f"expected a number, got {value}")
    return value


@tokens.command()
@click.argument("name", required=False)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["evaluate", "read", "write", "admin"]),
    help="What it may do. Can be repeated. [default: everything]",
)
@click.option(
    "--detector",
    "wanted",
    metavar="ID|NAME",
    multiple=True,
    help="A detector that it may use. Can be repeated. Detectors that it creates are added. [default: all]",
)
@click.option(
    "--expires",
    "expires_us",
    metavar="DURATION",
    callback=duration_us,
    help="How long it is valid, such as 12h or 90d. [default: until it is revoked]",
)
@click.option(
    "--events-per-s",
    type=click.FloatRange(min=0, min_open=True),
    callback=_finite,
    help="How many events it may send a second. [default: unlimited]",
)
@service_and_output_options
def create(
    *,
    client: Client,
    name: str | None,
    scopes: tuple[Literal["evaluate", "read", "write", "admin"], ...],
    wanted: tuple[str, ...],
    expires_us: int | None,
    events_per_s: float | None,
    output: str,
) -> None:
    """Create a token and print it. NAME describes its purpose. The token is never shown again.

    Without NAME, a token with scopes or detectors is named after them.
    """
    known = list(client.detectors()) if wanted else []
    detectors = [detector_among(known, one) for one in wanted]
    bounds = TokenBounds()
    if scopes:
        bounds["scopes"] = scopes
    if wanted:
        bounds["detectors"] = [one.id for one in detectors]
    if expires_us is not None:
        bounds["expires_ms"] = round(time.time() * 1000) + expires_us // 1000
    if events_per_s is not None:
        bounds["events_per_s"] = events_per_s
    if name is None and bounds:
        name = " ".join([*scopes, *(one.name for one in detectors)])[:_NAME_CHARS_MAX] or "token"
    created = client.send(calls.create_token(name, **bounds))
    tell(output, created, created.token)
    if output == "table":
        click.echo(f"Its id is {created.id}. Only a digest is stored.", err=True)


@tokens.command()
@click.argument("token_id", metavar="ID")
@yes_option
@service_and_output_options
def revoke(*, client: Client, token_id: str, yes: bool, output: str) -> None:
    """Revoke a token. It is then refused."""
    if not yes:
        click.confirm(f"Revoke the token {token_id}?", abort=True, err=True)
    revoked = client.send(calls.revoke_token(token_id))
    tell(output, revoked, f"The token {token_id} is revoked.")


def _detectors(token: ListedToken, names: Mapping[str, str]) -> str:
    if token.detectors is None:
        return "all"
    shown = [names.get(one, one) for one in token.detectors[:_DETECTORS_SHOWN]]
    more = len(token.detectors) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])]) or "none"


def _time(at_ms: int | None) -> str:
    return "" if at_ms is None else iso(at_ms * 1_000)


@click.command()
@click.option("--after", default=0, type=click.IntRange(min=0), help="Only changes after this number.")
@click.option("--limit", default=None, type=click.IntRange(min=1), help="Number of changes. [default: all]")
@click.option(
    "--detector", "wanted", metavar="ID|NAME", help="Only changes of this detector, its rules and relations."
)
@service_and_output_options
def changes(*, client: Client, after: int, limit: int | None, wanted: str | None, output: str) -> None:
    """Print who changed which token, detector, rule, relation or node, oldest first.

    The log keeps changes for as many days as the setting `--changes-kept-days` of the service says.
    """
    if wanted is not None and not _ID.fullmatch(wanted):
        # The log still knows the ids of deleted detectors.
        wanted = find_detector(client, wanted).id
    found = [one for one in _changes(client, after) if wanted is None or wanted in (one.id, one.detector_id)]
    found = found[:limit]
    rows = (
        (
            *(str(one.seq), iso(one.time_ms * 1_000), _who(one), f"{one.action} {one.kind}"),
            *(one.name or one.id, _text(one)),
        )
        for one in found
    )
    show(output, {"changes": found}, ("number", "at", "by", "what", "name", "old and new"), rows)


def _changes(client: Client, after: int) -> Iterator[LoggedChange]:
    while (page := client.send(calls.changes(after))).changes:
        yield from page.changes
        after = page.next


def _who(change: LoggedChange) -> str:
    if change.token is None:
        return "the service"
    return change.token.name or change.token.id or ""


def _text(change: LoggedChange) -> str:
    old, new = (bytes(one).decode() for one in (change.old, change.new))
    return " -> ".join(text for text in (old, new) if text != "{}")
