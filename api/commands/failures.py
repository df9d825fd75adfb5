"""How a command fails: a sentence on standard error, and exit status 1."""

from typing import NoReturn

import click


def fail(message: str) -> NoReturn:
    """End the command, its work failed."""
    for line in message.splitlines():
        click.echo(f"rule-detector: {line}", err=True)
    raise SystemExit(1)
