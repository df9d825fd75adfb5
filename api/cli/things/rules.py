"""`rule-detector rules`: manages the rules of a detector of a running service."""

from pathlib import Path
from typing import Any

import click
import msgspec

from api.cli.lookup import add_rules, find_detector, find_rule
from api.cli.options.service_options import service_and_output_options
from api.cli.options.values import named_values
from api.cli.printing.output import Option, show, tell, tell_messages, value_text, yes_option
from api.cli.printing.terminal import on_one_line
from api.cli.recordings.times import iso
from api.cli.rule_files.reading import is_rule_file, named_condition, read_rules, read_text
from engine.language.text.printer import format as canonical
from engine.language.validation.document import condition_from_document
from rule_detector_client import Client, Rule, ServiceError, calls

detector_option: Option = click.option(
    "--detector", required=True, metavar="ID|NAME", help="Detector that has the rules."
)


@click.group()
def rules() -> None:
    """List and change the rules of a detector of a running service."""


@rules.command("list")
@detector_option
@service_and_output_options
def list_(*, client: Client, detector: str, output: str) -> None:
    """List the rules, by priority.

    With -o json, `check` and `rules add` can read the list as a rules file.
    """
    found = list(client.rules(find_detector(client, detector).id))
    show(output, {"rules": found}, HEADER, map(_row, found))


def _found(client: Client, detector: str, rule: str) -> tuple[str, Rule]:
    """Return the id of a detector and one of its rules. Raises ServiceError."""
    detector_id = find_detector(client, detector).id
    return detector_id, find_rule(client, detector_id, rule)


def _acting(rule: Rule) -> list[str]:
    """Describe how a rule acts, if not at each event at which it is true."""
    said = ["timed"] if rule.timed else []
    if rule.every_secs is not None:
        by = f" for each {on_one_line(', '.join(rule.every_by))}" if rule.every_by else ""
        said.append(f"at most once in {rule.every_secs} s{by}")
    return said


@rules.command(name="show")
@click.argument("rule", metavar="ID|NAME")
@detector_option
@service_and_output_options
def show_(*, client: Client, rule: str, detector: str, output: str) -> None:
    """Show a rule as it was written.

    Prints its description, its labels and how it acts as comments, then its condition with comments.
    """
    detector_id, found = _found(client, detector, rule)
    shown = client.send(calls.get_rule(detector_id, found.id))
    said = [f"# {on_one_line(line)}" for line in shown.description.splitlines()]
    said += [f"# {on_one_line(name)}: {value_text(value)}" for name, value in shown.labels.items()]
    said += [f"# {how}" for how in _acting(shown)]
    tell(output, shown, "\n".join([*said, shown.source]))


@rules.command(
    epilog="""\b
Examples:
  rule-detector rules add rules.yaml --detector shop
  rule-detector rules add "large payment" "amount > 1000" --detector shop
"""
)
@click.argument("given", nargs=-1, required=True, metavar="FILE | NAME CONDITION")
@detector_option
@service_and_output_options
def add(*, client: Client, given: tuple[str, ...], detector: str, output: str) -> None:
    """Add the rules of a FILE, or one rule.

    FILE has rules as `name: condition`, in YAML or JSON, or is output of `rules list -o json`; - is standard
    input.

    Rules that the detector already has are not changed. If one rule is refused, none is added.
    """
    match given:
        case [file] if " " in file and not Path(file).exists():
            raise click.UsageError(f"`{file}` is no file. For one rule, give its NAME and its CONDITION.")
        case [file]:
            wanted = read_rules(file)
        case [file, _] if is_rule_file(file) or Path(file).is_file():
            raise click.UsageError(
                f"`{file}` is a file of rules: give it alone, as in `rules add {file} --detector …`. "
                "For one rule, give its NAME and its CONDITION."
            )
        case [name, condition]:
            wanted = [named_condition(name, condition)]
        case _:
            raise click.UsageError("Expected a FILE, or a NAME and a CONDITION.")
    created = add_rules(client, find_detector(client, detector).id, wanted)
    there = f"; {len(wanted) - len(created)} were there already" if len(created) < len(wanted) else ""
    tell(output, {"created": created}, f"{len(created)} of {len(wanted)} rules added{there}.")


@rules.command()
@click.argument("rule", metavar="ID|NAME")
@detector_option
@click.option("--name", help="New name.")
@click.option("--condition", help="New condition, as text or JSON. A different one restarts the history.")
@click.option(
    "--condition-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the new condition.",
)
@click.option("--notify/--no-notify", default=None, help="Whether its actions have the type `notify`.")
@click.option("--shadow/--no-shadow", default=None, help="Whether it is evaluated without ever acting.")
@click.option("--description", help="New description; an empty text removes it.")
@click.option(
    "--label",
    "labels",
    metavar="NAME=VALUE",
    multiple=True,
    callback=named_values,
    help="Label for its actions, such as severity=high or level=7. Can be repeated. Replaces all old labels.",
)
@click.option("--no-labels", is_flag=True, help="Remove all labels.")
@click.option("--timed/--no-timed", default=None, help="Whether it also fires when time alone makes it true.")
@click.option(
    "--every-secs",
    type=float,
    metavar="SECONDS",
    help="Act at most once in this time; 0 to act whenever the condition is true.",
)
@click.option(
    "--every-by",
    metavar="NAME",
    multiple=True,
    help="Fact by whose values --every-secs counts. Can be repeated.  [default: the rule's keys]",
)
@click.option("--keep-history", is_flag=True, help="Restart the history only of new parts of the condition.")
@service_and_output_options
def change(
    *,
    client: Client,
    rule: str,
    detector: str,
    condition_file: Path | None,
    labels: dict[str, Any],
    no_labels: bool,
    every_by: tuple[str, ...],
    keep_history: bool,
    output: str,
    **wanted: Any,
) -> None:
    """Change a rule: its name, condition, labels, or how it acts."""
    if labels and no_labels:
        raise click.UsageError("`--label` and `--no-labels` exclude each other.")
    if wanted["condition"] is not None and condition_file is not None:
        raise click.UsageError("`--condition` and `--condition-file` exclude each other.")
    if condition_file is not None:
        wanted["condition"] = read_text(str(condition_file))
    wanted |= {"labels": labels if labels or no_labels else None, "every_by": every_by or None}
    if all(value is None for value in wanted.values()):
        raise click.UsageError("Nothing to change: give `--name`, `--condition` or another option.")
    detector_id, found = _found(client, detector, rule)
    change = calls.change_rule(detector_id, found.id, **wanted, keep_history=keep_history)
    _show_changed(output, client.send(change))


@rules.command()
@click.argument("rule", metavar="ID|NAME")
@detector_option
@service_and_output_options
def enable(*, client: Client, rule: str, detector: str, output: str) -> None:
    """Enable a rule. Its history restarts."""
    _switch(client, rule, detector, output, enabled=True)


@rules.command()
@click.argument("rule", metavar="ID|NAME")
@detector_option
@service_and_output_options
def disable(*, client: Client, rule: str, detector: str, output: str) -> None:
    """Disable a rule. Its history is lost."""
    _switch(client, rule, detector, output, enabled=False)


def _switch(client: Client, rule: str, detector: str, output: str, *, enabled: bool) -> None:
    detector_id, found = _found(client, detector, rule)
    _show_changed(output, client.send(calls.change_rule(detector_id, found.id, enabled=enabled)))


@rules.command()
@click.argument("rule", metavar="ID|NAME")
@detector_option
@service_and_output_options
def versions(*, client: Client, rule: str, detector: str, output: str) -> None:
    """Show the versions of a rule, and whose token made each."""
    detector_id, shown = _found(client, detector, rule)
    found = client.send(calls.rule_versions(detector_id, shown.id))
    rows = [
        (
            str(each.version),
            "" if each.time_ms is None else iso(each.time_ms * 1_000),
            "" if each.token is None else on_one_line(each.token.name or each.token.id or ""),
            each.rule.name,
            _yes(each.rule.enabled),
            ", ".join(_acting(each.rule)),
            canonical(condition_from_document(each.rule.condition)),
        )
        for each in found
    ]
    show(output, {"versions": found}, _VERSIONS, rows)


@rules.command()
@click.argument("rule", metavar="ID|NAME")
@detector_option
@click.option("--version", type=click.IntRange(min=1), help="The version.  [default: the one before]")
@service_and_output_options
def revert(*, client: Client, rule: str, detector: str, version: int | None, output: str) -> None:
    """Restore an earlier version of a rule. This is a change, which creates a new version."""
    detector_id, reverted = _found(client, detector, rule)
    present, *earlier = client.send(calls.rule_versions(detector_id, reverted.id))
    wanted = present.version - 1 if version is None else version
    found = [each.rule for each in (present, *earlier) if each.version == wanted]
    if not found:
        kept = f"{earlier[-1].version} to {present.version}" if earlier else f"only {present.version}"
        raise ServiceError(f"there is no version {wanted} of the rule; there is {kept}")
    [was] = found
    now = present.rule
    same = was.condition == now.condition and was.source == now.source
    if was.every_secs and was.every_by is None and now.every_by is not None:
        # Only a rule without `every_secs` loses its `every_by`.
        client.send(calls.change_rule(detector_id, reverted.id, every_secs=0))
    change = calls.change_rule(
        detector_id,
        reverted.id,
        name=was.name,
        condition=None if same else was.source,
        enabled=was.enabled,
        notify=was.notify,
        shadow=was.shadow if was.shadow != now.shadow else None,
        description=was.description,
        labels=was.labels,
        timed=was.timed,
        every_secs=was.every_secs or 0,
        every_by=was.every_by,
    )
    _show_changed(output, client.send(change))


@rules.command()
@click.argument("rule", metavar="ID|NAME")
@detector_option
@yes_option
@service_and_output_options
def remove(*, client: Client, rule: str, detector: str, yes: bool, output: str) -> None:
    """Remove a rule with its history."""
    detector_id, found = _found(client, detector, rule)
    if not yes:
        click.confirm(f"Remove the rule `{found.name}` with its history?", abort=True, err=True)
    removed = client.send(calls.remove_rule(detector_id, found.id))
    tell(output, removed, f"The rule `{found.name}` is removed.")


def _show_changed(output: str, changed: Rule) -> None:
    tell_messages(changed.name, changed.messages)
    show(output, msgspec.structs.replace(changed, messages=[]), HEADER, [_row(changed)])


HEADER = ("id", "name", "enabled", "notify", "condition")
_VERSIONS = ("version", "since", "by", "name", "enabled", "acts", "condition")


def _row(rule: Rule) -> tuple[str, ...]:
    text = canonical(condition_from_document(rule.condition))
    return rule.id, rule.name, _yes(rule.enabled), "shadow" if rule.shadow else _yes(rule.notify), text


def _yes(value: bool) -> str:
    return "yes" if value else "no"
