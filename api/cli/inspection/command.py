"""`rule-detector inspect`: what a data folder holds and what in it is damaged."""

import json
from pathlib import Path
from typing import Any

import click

from api.cli.counted import counted
from api.cli.failures import CommandError
from api.cli.inspection.report import to_json, to_lines
from api.cli.options.values import key_option
from api.cli.printing.explained_rules import standing_lines


@click.command(
    epilog="""\b
Examples:
  rule-detector inspect /var/lib/rule-detector
  rule-detector inspect rule-detector-data --detector 6f1c2a9be07d4c58a3f0d1e2b3c4d5e6 --rules
  rule-detector inspect /backup/monday --detector shop --rule "login after a failed one" --key user=ada
  rule-detector inspect /backup/monday --json | jq '.damage'

Exit status: 0 intact, 1 something is damaged or DIR is not a data folder, 2 wrong usage.
"""
)
@click.argument("folder", metavar="DIR", type=click.Path(readable=False, path_type=Path))
@click.option("--detector", metavar="ID|NAME", help="Show this detector only.")
@click.option("--rules", is_flag=True, help="Show each rule: priority, id, name and condition.")
@click.option(
    "--rule", metavar="ID|NAME", help="Show the standing verdict of this rule, at the detector's clock."
)
@key_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def inspect(
    *,
    folder: Path,
    detector: str | None,
    rules: bool,
    rule: str | None,
    key: dict[str, Any],
    as_json: bool,
) -> None:
    """Show what a data folder holds, and what in it is damaged.

    Lists detectors, rules, relations, clocks, keys, snapshots and journals, with every detector as it
    would be after the next start. Damage is listed with file and offset.

    The command only reads and takes no lock, so it works on a backup, on a folder that the service refuses,
    and on one that is in use.
    """
    from api.cli.inspection.data_folder import read_data_folder  # noqa: PLC0415 -- slow to import, which --help should not be

    if rule is not None:
        if detector is None:
            raise click.UsageError("`--rule` needs `--detector`.")
        _show_rule(folder, detector, rule, key, as_json=as_json)
        return
    report = read_data_folder(folder, only=detector, with_rules=rules)
    click.echo(to_json(report) if as_json else "\n".join(to_lines(report)))
    if not report.whole:
        raise CommandError(f"{folder}: damage in {counted(len(report.damage), 'place')}")


def _show_rule(folder: Path, detector: str, rule: str, key: dict[str, Any], *, as_json: bool) -> None:
    from api.cli.inspection.data_folder import stored_detector, stored_rule_id  # noqa: PLC0415 -- as above
    from engine.evaluation.inspecting.states import standing  # noqa: PLC0415

    stored = stored_detector(folder, detector)
    tree = standing(stored, stored_rule_id(stored, rule), key)
    if as_json:
        click.echo(json.dumps(tree, ensure_ascii=False, allow_nan=False))
        return
    for line in standing_lines(tree, stored.clock_us or 0):
        click.echo(line)
