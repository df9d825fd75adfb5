"""One setting: its name, type, default and help, and how its values are read."""

import dataclasses
import math
import re
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click

PREFIX: Final = "RULE_DETECTOR_"
_SHOWN_CHARS: Final = 80
_ORIGIN: Final = r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?"
ADDRESSES: Final = {
    "otlp_endpoint": (re.compile(r"https?://[!-~]+"), "http://HOST:PORT or https://…"),
    "cors_origin": (
        re.compile(f"{_ORIGIN}(?:, *{_ORIGIN})*"),
        "http://HOST, https://HOST:PORT, or several with commas between, in lower case",
    ),
}
"""The patterns of settings with addresses, and how messages describe them."""


def variable_of(name: str) -> str:
    """Return the environment variable for the name of a setting."""
    return PREFIX + name.upper()


def option_of(name: str) -> str:
    """Return the option of `serve` for the name of a setting."""
    return "--" + name.replace("_", "-")


def type_of(annotation: Any, least: Any, most: Any) -> click.ParamType[Any]:
    """Return the type of a setting, given the type of its field and its inclusive bounds."""
    if typing.get_origin(annotation) is Literal:
        return click.Choice(typing.get_args(annotation), case_sensitive=False)
    if annotation is int:
        return click.IntRange(least, most)
    if annotation is float:
        return click.FloatRange(least, most)
    if annotation is bool:
        return click.BOOL
    return click.STRING if annotation in (str, str | None) else click.Path(path_type=Path, readable=False)


def setting_field(default: Any, text: str, *, least: float = 1, most: float | None = None) -> Any:
    """Return a field with its default, its help and its inclusive bounds."""
    metadata = {"text": text, "bounds": (least, most)}
    return dataclasses.field(default=default, metadata=metadata)


class SettingsError(ValueError):
    """Invalid settings: all defects, one a line."""

    def __init__(self, *defects: str) -> None:
        assert defects, "an error says why"
        super().__init__("\n".join(defects))
        self.defects = defects


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: a field of Settings, an option of `serve` and an environment variable."""

    name: str
    type: click.ParamType[Any]
    default: Any
    text: str
    """The help."""

    @property
    def variable(self) -> str:
        """The environment variable, as `RULE_DETECTOR_MAX_RESIDENT`."""
        return variable_of(self.name)

    @property
    def option(self) -> str:
        """The option of `serve`, as `--max-resident`."""
        return option_of(self.name)

    @property
    def shown_default(self) -> str:
        """The default as a user would write it; empty if there is none."""
        return self.written(self.default)

    @staticmethod
    def written(value: object) -> str:
        """Return a value as a user would write it, empty for None."""
        match value:
            case None:
                return ""
            case bool():
                return "true" if value else "false"
            case float():
                return f"{value:g}"
            case _:
                return str(value)

    def read(self, value: object) -> Any:
        """Parse a text, or return a valid value unchanged. Raises SettingsError."""
        try:
            found = self.type.convert(value.strip() if isinstance(value, str) else value, None, None)
        except click.BadParameter:
            found = math.nan
        if isinstance(found, float) and not math.isfinite(found):
            shown = str(value)[:_SHOWN_CHARS]
            raise SettingsError(f"{self.name}: expected {self._expected}, got `{shown}`")
        return found

    @property
    def _expected(self) -> str:
        match self.type:
            case click.Choice(choices=choices):
                *others, last = (f"`{choice}`" for choice in choices)
                return f"{', '.join(others)} or {last}"
            case click.IntRange(min=least, max=most) | click.FloatRange(min=least, max=most):
                kind = "a whole number" if isinstance(self.type, click.IntRange) else "a number"
                return (
                    f"{kind} of at least {least:g}" if most is None else f"{kind} from {least:g} to {most:g}"
                )
            case _:
                return "true or false"
