"""Failures and warnings of a command, on standard error; a failure exits with status 1."""

from typing import NoReturn

import click


def fail(message: str) -> NoReturn:
    """Print the message and exit with status 1."""
    for line in message.splitlines():
        click.echo(f"rule-detector: {line}", err=True)
    raise SystemExit(1)


def warn(message: str) -> None:
    """Print a warning; the command continues."""
    click.echo(f"rule-detector: warning: {message}", err=True)
