"""Messages of commands: failures and warnings on standard error, and numbers with nouns and units."""

from typing import IO, Any, Final

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


_UNITS_US: Final = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_AMOUNT_MAX: Final = 120


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless the number is 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration_at_least(time_us: int) -> str:
    """Return a duration as options accept it, rounded up to a suitable unit."""
    amounts = {unit: -(-time_us // unit_us) for unit, unit_us in _UNITS_US.items()}
    unit = next((unit for unit, amount in amounts.items() if amount <= _AMOUNT_MAX), "d")
    return f"{amounts[unit]}{unit}"
