"""`rule-detector backup`, `restore`, `token` and `retry`: work on a data folder without the service."""

import secrets
from pathlib import Path

import click

from api.cli.messages import CommandError, counted, warn
from api.cli.printing.output import Option
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import FolderInUse


def data_option(
    meaning: str = "Data folder of the service.",
) -> Option:
    """Return the option, which is required; the command receives `data`."""
    return click.option(
        "--data",
        required=True,
        metavar="DIR",
        envvar="RULE_DETECTOR_DATA",
        type=click.Path(file_okay=False, path_type=Path),
        help=f"{meaning}  [env RULE_DETECTOR_DATA]",
    )


_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Example:
  rule-detector backup --data /var/lib/rule-detector /backup/monday
"""
)
@data_option()
@click.argument("target", metavar="TARGET", type=_FOLDER)
def backup(data: Path, target: Path) -> None:
    """Copy the data folder to TARGET, a new or empty folder. The service may be running or stopped.

    The copy has everything that was acknowledged before the command began. Each detector is copied as of some
    moment while the command ran, so detectors may differ by seconds. `inspect` reads the copy, and `restore`
    makes a data folder from it.
    """
    _copy(data, target, "copied")


@click.command(
    epilog="""\b
Example:
  rule-detector restore --data /var/lib/rule-detector /backup/monday
  rule-detector restore --data /var/lib/rule-detector /backup --detector 6f1c2a9be07d4c58a3f0d1e2b3c4d5e6
"""
)
@data_option()
@click.argument("source", metavar="BACKUP", type=_FOLDER)
@click.option("--detector", metavar="ID", help="Restore only this detector, into an existing data folder.")
@click.option("--new-id", is_flag=True, help="With --detector: under a new id, beside an existing one.")
def restore(*, data: Path, source: Path, detector: str | None, new_id: bool) -> None:
    """Make a data folder from a backup. The data folder must be new or empty.

    With --detector, restore one detector into a data folder that no service uses: under its id, if the
    detector with that id is deleted or damaged, or under a new id.

    The backup lacks events that were evaluated after it was made. Idempotency keys that were used since then
    count as new.
    """
    if detector is None:
        if new_id:
            raise click.UsageError("`--new-id` needs `--detector`.")
        _copy(source, data, "restored", is_backup=True)
        return
    from engine.runtime.catalogue.offline import restore_detector  # noqa: PLC0415 -- slow to import, which --help should not be

    restored = restore_detector(source, data, detector, secrets.token_hex(16) if new_id else None)
    click.echo(f"{data}: restored the detector {restored}")


def _copy(source: Path, target: Path, done: str, *, is_backup: bool = False) -> None:
    from engine.runtime.catalogue.offline import copy_data_folder  # noqa: PLC0415 -- slow to import, which --help should not be

    copied = copy_data_folder(source, target, is_backup=is_backup)
    click.echo(f"{target}: {done} {counted(copied.detectors, 'detector')}, {copied.file_bytes / 1e6:.1f} MB.")
    if is_backup:
        # A service with `--existing-data` would take a folder without an id for a missing mount.
        begin_folder(target)
    for damage in copied.damage:
        warn(damage)
    if copied.damage:
        raise CommandError(
            f"{counted(len(copied.damage), 'folder')} damaged in {source} as well; the others are whole"
        )


@click.group()
def token() -> None:
    """Create tokens while the service is stopped."""


@token.command(
    epilog="""\b
Example:
  rule-detector token new --data /var/lib/rule-detector
"""
)
@data_option("Data folder of the service; created if missing.")
def new(data: Path) -> None:
    """Create a token and print it on standard output.

    Use it if all tokens are lost, or to have a token before the first start. While the service runs, use
    `tokens create`.
    """
    from engine.runtime.catalogue.offline import mint_offline  # noqa: PLC0415 -- slow to import, which --help should not be

    try:
        minted = mint_offline(data)
    except FolderInUse as error:
        raise CommandError(
            f"{error}; stop that first, or use a token that it knows: `rule-detector tokens create`"
        ) from None
    click.echo(minted.token)
    click.echo(
        f"Its id is {minted.id}. Only a digest is stored, so this is the only time it is shown.", err=True
    )


@click.command(
    epilog="""\b
Example:
  rule-detector retry --data /var/lib/rule-detector --detector 6f1c2a9be07d4c58a3f0d1e2b3c4d5e6
"""
)
@data_option()
@click.option("--detector", required=True, metavar="ID", help="Id of the detector.")
def retry(data: Path, detector: str) -> None:
    """End the pause of a detector whose journal made several processes crash.

    If several processes in a row crash or are killed while replaying the same record of a journal, its
    detector is paused for ten minutes and answers 1501. Once the cause is fixed, this command makes the next
    request try again. The service may be running or stopped.
    """
    from engine.runtime.detector.persistence.replay_attempts import retry as try_again  # noqa: PLC0415 -- slow to import, which --help should not be
    from snapshots.files import RealFiles  # noqa: PLC0415

    folder = data / "detectors" / detector
    if not folder.is_dir() or folder.parent != data / "detectors":
        raise CommandError(f"{data} holds no detector `{detector}`")
    try:
        deaths = try_again(folder, RealFiles())
    except OSError as error:
        raise CommandError(str(error)) from None
    if not deaths.sequence:
        click.echo(f"The detector {detector} is not paused.")
    else:
        click.echo(f"The next request tries the detector {detector} again: {deaths}.")
