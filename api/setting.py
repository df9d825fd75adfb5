"""One setting as people meet it: its names, its bounds, its words, and how its text is read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PREFIX: Final = "RULE_DETECTOR_"

SECRET_CHARS_MIN: Final = 32
"""Of a secret that somebody has chosen: 128 bits where it is random and hexadecimal."""

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off", ""})


class SettingsError(ValueError):
    """Settings that the service will not start with: every defect, one to a line."""

    def __init__(self, *defects: str) -> None:
        assert defects, "an error says why"
        super().__init__("\n".join(defects))
        self.defects = defects


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as people meet it: a name, an option, an environment variable, a default, a sentence."""

    name: str
    kind: type
    """bool, int, float, str or Path."""
    default: Any
    text: str
    least: float | None
    most: float | None
    secret: bool
    choices: tuple[str, ...] = ()
    """The words that it can be, where only some can."""

    @property
    def variable(self) -> str:
        """The environment variable, as `RULE_DETECTOR_MAX_RESIDENT`."""
        return PREFIX + self.name.upper()

    @property
    def option(self) -> str:
        """The option of `serve`, as `--max-resident`."""
        return "--" + self.name.replace("_", "-")

    @property
    def shown_default(self) -> str:
        """The default as it would be written, empty where there is none."""
        match self.default:
            case None:
                return ""
            case bool():
                return "true" if self.default else "false"
            case float():
                return f"{self.default:g}"
            case _:
                return str(self.default)

    def read(self, text: str) -> Any:
        """Give the value that `text` writes. Raises SettingsError."""
        try:
            if self.kind is bool:
                return _read_bool(text)
            if self.choices:
                return text.strip().lower()
            return self.kind(text.strip()) if self.kind in (int, float) else self.kind(text)
        except ValueError:
            shown = "" if self.secret else f", got `{text[:80]}`"
            raise SettingsError(f"{self.name}: expected {_WORDS[self.kind]}{shown}") from None

    def defect(self, value: Any) -> str | None:
        """Say what is wrong with a value, None where nothing is."""
        if self.choices and value not in self.choices:
            *others, last = (f"`{choice}`" for choice in self.choices)
            return f"{self.name}: expected {', '.join(others)} or {last}, got `{str(value)[:80]}`"
        if isinstance(value, int | float) and not isinstance(value, bool):
            # NaN fails both comparisons, so they are written to hold for good values only.
            if self.least is not None and not value >= self.least:
                return f"{self.name}: expected at least {self.least:g}, got {value}"
            if self.most is not None and not value <= self.most:
                return f"{self.name}: expected at most {self.most:g}, got {value}"
            if value in (float("inf"), float("-inf")):
                return f"{self.name}: expected a finite number, got {value}"
        if self.name == "bootstrap_token" and value is not None and not _is_strong(value):
            return (
                f"{self.name}: expected at least {SECRET_CHARS_MIN} visible ASCII characters without blanks "
                "(`openssl rand -hex 32` makes some), for whoever guesses it may do everything"
            )
        if self.name == "host" and not value:
            return "host: expected an address, got an empty string"
        return None


_WORDS: Final[dict[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    Path: "a path",
}


def _read_bool(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(text)


def _is_strong(token: str) -> bool:
    return len(token) >= SECRET_CHARS_MIN and all("!" <= character <= "~" for character in token)
