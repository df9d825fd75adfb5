"""`rule-detector inspect` and `repair`: show a data folder, and make a damaged one usable again."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from api.cli.inspection.report import to_json, to_lines
from api.cli.messages import CommandError, counted, warn
from api.cli.options.values import key_option
from api.cli.printing.explained_rules import standing_lines

if TYPE_CHECKING:
    from snapshots.repair import Kept


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
    *, folder: Path, detector: str | None, rules: bool, rule: str | None, key: dict[str, Any], as_json: bool
) -> None:
    """Show the contents and the damage of a data folder.

    Lists detectors, rules, relations, clocks, keys, snapshots and journals, with each detector in its state
    after the next start. Damage is listed with file and offset.

    The command only reads and takes no lock, so it works on a backup, on a folder that the service refuses,
    and on a folder in use.
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
        places = counted(len(report.damage), "place")
        raise CommandError(f"{folder}: damage in {places}; `rule-detector repair` shows what can be kept")


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


@click.command(
    epilog="""\b
Examples:
  rule-detector repair /var/lib/rule-detector
  rule-detector repair /var/lib/rule-detector --yes

Exit status: 0 no damage is left, 1 something cannot be repaired, 2 wrong usage.
"""
)
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--yes", is_flag=True, help="Write without asking.")
def repair(folder: Path, *, yes: bool) -> None:
    """Make damaged parts of a data folder usable again, and keep as much of them as possible.

    First shows what would be kept: of a detector, all records up to the damage; of tokens and catalogue, also
    records after it. Damaged files are moved to DIR/damaged, never removed. No service may use the folder.
    The command may be repeated, also after it was killed.

    A backup may have more data: `restore` makes a new data folder from a backup.
    """
    from api.cli.inspection.data_folder import detector_folders  # noqa: PLC0415 -- slow to import, which --help should not be
    from snapshots.data_folder.identity import IDENTITY_NAME, read_identity  # noqa: PLC0415
    from snapshots.data_folder.lock import FolderLock  # noqa: PLC0415
    from snapshots.errors import StorageError  # noqa: PLC0415
    from snapshots.files import RealFiles  # noqa: PLC0415
    from snapshots.repair import finish_repairs, what_can_be_kept  # noqa: PLC0415
    from snapshots.repair import repair as repair_folder  # noqa: PLC0415

    detectors, aside = folder / "detectors", folder / "damaged"
    if not any((folder / name).is_dir() for name in ("directory", "detectors", "damaged")):
        raise CommandError(f"{folder} is no data folder: it has no folder `directory`")
    # The detectors' folder may be on another disk.
    aside_of = {folder: aside, detectors: detectors.resolve().parent / "damaged" / "detectors"}
    with FolderLock(folder):
        for parent, its_aside in aside_of.items():
            finish_repairs(parent, its_aside)
        found: list[Kept] = []
        unrepaired = 0
        try:
            read_identity(folder, RealFiles())
        except (StorageError, OSError) as error:
            warn(f"{folder / IDENTITY_NAME}: {error}")
            unrepaired += 1
        for one in (folder / "directory", *detector_folders(folder)):
            try:
                kept = what_can_be_kept(one, after_damage=one.name == "directory")
            except StorageError as error:
                warn(str(error))
                unrepaired += 1
                continue
            if kept is not None:
                found.append(kept)
                click.echo(f"{one}: {kept.refusal}")
                click.echo(f"  what can be kept: everything up to record {kept.last}{_told(kept)}")
        if not found and not unrepaired:
            click.echo(f"{folder}: nothing to repair")
            return
        if any(kept.folder.name == "directory" and kept.skipped for kept in found):
            warn("a token whose revocation cannot be read is valid again: revoke it anew")
        if found and not yes:
            click.confirm(f"Repair {counted(len(found), 'folder')}?", abort=True)
        for kept in found:
            old = repair_folder(kept, aside_of[kept.folder.parent])
            click.echo(f"{kept.folder}: repaired; the damaged folder is now {old}")
    if unrepaired:
        raise CommandError(f"{folder}: {counted(unrepaired, 'part')} cannot be repaired, as said above")


def _told(kept: "Kept") -> str:
    """Return what else there is to know about what can be kept of a folder."""
    said = ""
    if kept.snapshot.sequence < kept.newest:
        said = f", from the older snapshot of record {kept.snapshot.sequence}"
    if kept.skipped:
        said += f"; {counted(kept.skipped, 'record')} among them cannot be read"
    if kept.last < kept.newest:
        said += f"; lost is all after it, up to record {kept.newest} or later"
    return said
