"""`rule-detector token`: tokens without a running service."""

from pathlib import Path

import click

from api.cli.failures import fail


@click.group()
def token() -> None:
    """Mint tokens on a data folder that no service is using."""


@token.command(
    epilog="""\b
Example:
  rule-detector token new --data /var/lib/rule-detector
"""
)
@click.option(
    "--data",
    required=True,
    metavar="DIR",
    envvar="RULE_DETECTOR_DATA",
    type=click.Path(file_okay=False, path_type=Path),
    help="The data folder of the service; made where it is missing.  [env RULE_DETECTOR_DATA; required]",
)
def new(data: Path) -> None:
    """Mint a token and print it: alone on standard output, for scripts.

    For when all tokens are lost, or to have one before the first start. While a service is using the
    folder, ask it for a token instead: POST /api/token.
    """
    from engine.runtime.catalogue.directory import mint_offline  # noqa: PLC0415 -- takes a moment that --help need not wait for
    from snapshots.errors import FolderInUse, StorageError  # noqa: PLC0415

    try:
        minted = mint_offline(data)
    except FolderInUse as error:
        fail(f"{error}; ask the service that is running for a token instead: POST /api/token")
    except StorageError as error:
        fail(str(error))
    click.echo(minted.token)
    click.echo(
        f"Its id is {minted.id}. Only its digest is kept: this is the only time it is shown.", err=True
    )
