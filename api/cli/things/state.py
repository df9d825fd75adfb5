"""`rule-detector state`: shows the state of a detector of a running service."""

import json
from collections.abc import Callable
from typing import Any, Final

import click
import msgspec

from api.cli.lookup import find_detector, find_rule
from api.cli.options.service_options import service_and_output_options
from api.cli.options.values import key_option
from api.cli.printing.explained_rules import standing_lines
from api.cli.printing.output import show
from api.cli.recordings.times import iso
from rule_detector_client import Client, calls


@click.command(
    epilog="""\b
Examples:
  rule-detector state --detector shop
  rule-detector state --detector shop --list keys --prefix 203.0.113.
  rule-detector state --detector shop --rule "login after a failed one" --key user=ada
  rule-detector state --detector shop --rule "login after a failed one" --list keys --true
"""
)
@click.option("--detector", required=True, metavar="ID|NAME", help="Detector to show.")
@click.option(
    "--list",
    "listed",
    type=click.Choice(["keys", "nodes", "rules"]),
    help="List its live keys, its stored temporal conditions, or its rules with their costs.",
)
@click.option(
    "--prefix", default="", help="List only keys with a value, or rules with a name, that begins with this."
)
@click.option(
    "--sort",
    type=click.Choice(["cost", "priority", "seen"]),
    default="cost",
    help="Order of --list rules: most expensive first, or by priority; of --list keys: with `seen`, most "
    "recently seen first.  [default: cost]",
)
@click.option("--limit", default=100, type=click.IntRange(1, 100), help="Entries in a page.  [default: 100]")
@click.option("--after", metavar="AFTER", help="Continue at the `after` of the previous page.")
@click.option("--rule", metavar="ID|NAME", help="Show the standing verdict of this rule.")
@key_option
@click.option("--true", "is_true", is_flag=True, help="List the keys for which --rule is true now.")
@service_and_output_options
def state(
    *,
    client: Client,
    detector: str,
    listed: str | None,
    prefix: str,
    sort: str,
    limit: int,
    after: str | None,
    rule: str | None,
    key: dict[str, Any],
    is_true: bool,
    output: str,
) -> None:
    """Show the state of a detector: in numbers, page by page, or one rule for one key.

    The tree of a rule shows its standing verdict: that at an event now with only the keys of the rule as
    fields.
    """
    if is_true and (rule is None or listed != "keys" or key):
        raise click.UsageError("`--true` needs `--rule` and `--list keys`, and takes no `--key`.")
    if rule is not None and listed is not None and not is_true:
        raise click.UsageError("`--rule` and `--list` exclude each other, unless `--true` is given.")
    if key and rule is None:
        raise click.UsageError("`--key` needs `--rule`.")
    if listed is None and (prefix or after is not None):
        raise click.UsageError("`--prefix` and `--after` need `--list`.")
    detector_id = find_detector(client, detector).id
    rule_id = None if rule is None else find_rule(client, detector_id, rule).id
    if rule_id is not None and listed is None:
        _show_rule(
            client.send(calls.state(detector_id, rule=rule_id, key=json.dumps(key, allow_nan=False))), output
        )
    elif listed is not None:
        page = {"prefix": prefix, "sort": sort, "limit": str(limit)}
        if after is not None:
            page["after"] = after
        if rule_id is not None:
            page |= {"rule": rule_id, "true": "true"}
        _show_page(client.send(calls.state(detector_id, list=listed, **page)), listed, output)
    else:
        found = client.send(calls.state(detector_id))
        show(output, found, ["", ""], [[name, _readable(name, value)] for name, value in found.items()])


def _show_rule(found: dict[str, Any], output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.encode(found))
        return
    for line in standing_lines(found, round(found.get("clock_ms", 0) * 1_000)):
        click.echo(line)


def _show_page(found: dict[str, Any], listed: str, output: str) -> None:
    columns = _COLUMNS[listed]
    rows = ([text(entry) for text in columns.values()] for entry in found[listed])
    show(output, found, list(columns), rows)
    if "after" in found and output == "table":
        click.echo(f"more: --after {found['after']}")


def _readable(name: str, value: Any) -> str:
    """Return a number, time or list in readable form."""
    if name.endswith("_ms"):
        return iso(round(value * 1_000))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(f"{' '.join(path['per'])}: {path['live']}" for path in value)
    if isinstance(value, dict):
        return ", ".join(f"{part} {_readable(part, held)}" for part, held in value.items() if held != [])
    return str(value)


def _pairs(key: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in key.items())


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.3g} %"


_COLUMNS: Final[dict[str, dict[str, Callable[[dict[str, Any]], str]]]] = {
    "keys": {
        "key": lambda it: _pairs(it["key"]),
        "last event": lambda it: str(it["last_event"]),
        "memories": lambda it: str(it["memories"]),
    },
    "nodes": {
        "condition": lambda it: str(it["text"]),
        "per": lambda it: ", ".join(it["per"]),
        "entries": lambda it: str(it["entries"]),
        "bytes": lambda it: str(it["bytes"]),
        "uses": lambda it: str(it["uses"]),
    },
    "rules": {
        "priority": lambda it: str(it["priority"]),
        "rule": lambda it: str(it["name"]),
        "true": lambda it: str(it["times_true"]),
        "evaluated": lambda it: _percent(it.get("evaluated_share")),
        "time": lambda it: _percent(it.get("time_share")),
    },
}
"""The columns of each list."""
