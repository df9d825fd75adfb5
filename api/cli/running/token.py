"""`rule-detector token`: creates tokens while the service is stopped."""

from pathlib import Path

import click

from api.cli.failures import fail
from api.cli.options.data_option import data_option


@click.group()
def token() -> None:
    """Create tokens while the service is stopped."""


@token.command(
    epilog="""\b
Example:
  rule-detector token new --data /var/lib/rule-detector
"""
)
@data_option("Data folder of the service; created if it is missing.")
def new(data: Path) -> None:
    """Create a token and print it on standard output.

    Use it if all tokens are lost, or to have one before the first start. A running service creates tokens
    itself: POST /api/token.
    """
    from engine.runtime.catalogue.directory import mint_offline  # noqa: PLC0415 -- slow to import, which --help should not be
    from snapshots.errors import FolderInUse, StorageError  # noqa: PLC0415

    try:
        minted = mint_offline(data)
    except FolderInUse as error:
        fail(f"{error}; ask the running service for a token: POST /api/token")
    except StorageError as error:
        fail(str(error))
    click.echo(minted.token)
    click.echo(
        f"Its id is {minted.id}. Only a digest is stored, so this is the only time it is shown.", err=True
    )
