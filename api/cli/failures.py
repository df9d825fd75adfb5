"""Failures and warnings of a command, on standard error."""

from typing import IO, Any

import click


class CommandError(click.ClickException):
    """Ends the command with its message and the exit status 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message."""
        for line in self.message.splitlines():
            click.echo(f"rule-detector: {line}", file, err=True, color=True)


def warn(message: str) -> None:
    """Print a warning; the command continues."""
    click.echo(f"rule-detector: warning: {message}", err=True)
