"""`rule-detector retry`: have a detector be tried again that is left alone because processes ended at it."""

from pathlib import Path

import click

from api.cli.failures import fail


@click.command(
    epilog="""\b
Example:
  rule-detector retry --data /var/lib/rule-detector --detector 6f1c2a9be07d4c58a3f0d1e2b3c4d5e6
"""
)
@click.option(
    "--data",
    required=True,
    metavar="DIR",
    envvar="RULE_DETECTOR_DATA",
    type=click.Path(file_okay=False, path_type=Path),
    help="The data folder of the service.  [env RULE_DETECTOR_DATA; required]",
)
@click.option("--detector", required=True, metavar="ID", help="The detector, by its id.  [required]")
def retry(data: Path, detector: str) -> None:
    """Have a detector replay its journal at the next request, however many processes ended there.

    A record of a journal at which several processes in a row crashed or were killed is left alone for ten
    minutes, and requests for its detector are answered with 1501. Where the cause has been removed, this
    command ends the wait. The service may be running or not.
    """
    from engine.runtime.detector.replay_attempts import retry as try_again  # noqa: PLC0415 -- takes a moment that --help need not wait for
    from snapshots.files import RealFiles  # noqa: PLC0415

    folder = data / "detectors" / detector
    if not folder.is_dir() or folder.parent != data / "detectors":
        fail(f"{data} holds no detector `{detector}`")
    try:
        deaths = try_again(folder, RealFiles())
    except OSError as error:
        fail(str(error))
    if not deaths.sequence:
        click.echo(f"Nothing keeps the detector {detector} from being tried.")
    else:
        click.echo(f"The detector {detector} is tried again at the next request: {deaths}.")
