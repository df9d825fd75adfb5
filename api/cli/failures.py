"""How a command fails, or warns: a sentence on standard error, and exit status 1 where it fails."""

from typing import NoReturn

import click


def fail(message: str) -> NoReturn:
    """End the command, its work failed."""
    for line in message.splitlines():
        click.echo(f"rule-detector: {line}", err=True)
    raise SystemExit(1)


def warn(message: str) -> None:
    """Say what may be a mistake; the command goes on."""
    click.echo(f"rule-detector: warning: {message}", err=True)
