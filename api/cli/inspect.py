"""`rule-detector inspect`: what a data folder holds and what is damaged, without a service."""

from pathlib import Path

import click

from api.cli.failures import fail
from api.cli.folders.report import counted, to_json, to_lines


@click.command(
    epilog="""\b
Examples:
  rule-detector inspect /var/lib/rule-detector
  rule-detector inspect rule-detector-data --detector 6f1c2a9be07d4c58a3f0d1e2b3c4d5e6 --rules
  rule-detector inspect /backup/monday --json | jq '.damage'

Exit status: 0 whole, 1 something is damaged or DIR is no data folder, 2 wrong usage.
"""
)
@click.argument("folder", metavar="DIR", type=click.Path(readable=False, path_type=Path))
@click.option("--detector", metavar="ID", help="Tell of this detector only.")
@click.option("--rules", is_flag=True, help="Tell each rule: priority, id, name and condition.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def inspect(*, folder: Path, detector: str | None, rules: bool, as_json: bool) -> None:
    """Tell what a data folder holds: detectors, rules, clocks, keys, snapshots, journals, damage.

    Reads only, takes no lock, and changes nothing: for a backup, for a folder that a service refuses, and
    also while a service is using it. Each detector is brought to where its last record leaves it, as it
    would be at the next start. Damage is told with its file and the place in it.
    """
    from api.cli.folders.data_folder import NoDataFolder, read_data_folder  # noqa: PLC0415 -- takes a moment that --help need not wait for

    try:
        report = read_data_folder(folder, only=detector, with_rules=rules)
    except NoDataFolder as error:
        fail(str(error))
    click.echo(to_json(report) if as_json else "\n".join(to_lines(report)))
    if not report.whole:
        fail(f"{folder}: damage in {counted(len(report.damage), 'place')}")
