"""`rule-detector token`: creates tokens while the service is stopped."""

from pathlib import Path

import click

from api.cli.failures import CommandError
from api.cli.options.data_option import data_option
from snapshots.errors import FolderInUse


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
    from engine.runtime.catalogue.offline import mint_offline  # noqa: PLC0415 -- slow to import, which --help should not be

    try:
        minted = mint_offline(data)
    except FolderInUse as error:
        raise CommandError(f"{error}; ask the running service for a token: POST /api/token") from None
    click.echo(minted.token)
    click.echo(
        f"Its id is {minted.id}. Only a digest is stored, so this is the only time it is shown.", err=True
    )
