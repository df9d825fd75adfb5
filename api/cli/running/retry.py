"""`rule-detector retry`: ends the pause of a detector whose replay crashed repeatedly."""

from pathlib import Path

import click

from api.cli.failures import CommandError
from api.cli.options.data_option import data_option


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
    detector is not tried again for ten minutes and answers 1501. Once the cause is removed, this command
    makes the next request try it. The service may be running or stopped.
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
