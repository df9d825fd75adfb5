"""`rule-detector repair`: keeps what can be kept of a data folder that the service refuses."""

from pathlib import Path

import click

from api.cli.counted import counted
from api.cli.failures import CommandError, warn


@click.command(
    epilog="""\b
Examples:
  rule-detector repair /var/lib/rule-detector
  rule-detector repair /var/lib/rule-detector --yes
"""
)
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--yes", is_flag=True, help="Write without asking.")
def repair(folder: Path, *, yes: bool) -> None:
    """Make damaged parts of a data folder usable again, with what can be kept of them.

    Shows first what would be kept: of a detector, all records up to the damage; of the tokens and the
    catalogue, also those after it. What is damaged is moved to DIR/damaged, never removed. No service may
    use the folder. The command may be repeated, also if it was killed.

    A backup may have more: `restore` makes another data folder of one.
    """
    from snapshots.data_folder.lock import FolderLock  # noqa: PLC0415 -- slow to import, which --help should not be
    from snapshots.errors import StorageError  # noqa: PLC0415
    from snapshots.repair import Kept, finish_repairs, what_can_be_kept  # noqa: PLC0415
    from snapshots.repair import repair as repair_folder  # noqa: PLC0415

    detectors, aside = folder / "detectors", folder / "damaged"
    if not any((folder / name).is_dir() for name in ("directory", "detectors", "damaged")):
        raise CommandError(f"{folder} is no data folder: there is no folder {folder / 'directory'}")
    # The folder of detectors may be on another disk.
    aside_of = {folder: aside, detectors: detectors.resolve().parent / "damaged" / "detectors"}
    with FolderLock(folder):
        for parent, its_aside in aside_of.items():
            finish_repairs(parent, its_aside)
        found: list[Kept] = []
        for one in (folder / "directory", *(sorted(detectors.iterdir()) if detectors.is_dir() else ())):
            try:
                kept = what_can_be_kept(one, after_damage=one.name == "directory")
            except StorageError as error:
                warn(str(error))
                continue
            if kept is not None:
                found.append(kept)
                click.echo(f"{one}: {kept.refusal}")
                lost = (
                    f"; {counted(kept.skipped, 'record')} among them cannot be read" if kept.skipped else ""
                )
                click.echo(f"  what can be kept: everything up to record {kept.last}{lost}")
        if not found:
            click.echo(f"{folder}: nothing to repair")
            return
        if any(kept.folder.name == "directory" and kept.skipped for kept in found):
            warn("a token whose revocation cannot be read is valid again: revoke it anew")
        if not yes:
            click.confirm(f"Repair {counted(len(found), 'folder')}?", abort=True)
        for kept in found:
            old = repair_folder(kept, aside_of[kept.folder.parent])
            click.echo(f"{kept.folder}: repaired; the damaged folder is now {old}")
