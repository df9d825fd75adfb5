"""Options with special values: durations, names with values, files of variables."""

import json
import re
from math import isfinite
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from api.cli.printing.output import Option
from engine.language.diagnostics import json_type
from engine.language.durations import UNITS_MS, duration_seconds
from rule_detector_client import ServiceError
from rule_detector_client.json_values import object_json

_DURATION: Final = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(UNITS_MS)})")


def duration_us(_context: click.Context, _option: click.Parameter, given: str | None) -> int | None:
    """Read a duration, such as that of `--max-late 10s`, in microseconds."""
    if given is None:
        return None
    found = _DURATION.fullmatch(given)
    if found is None:
        raise click.BadParameter(f"`{given}`: expected a duration such as 500ms, 10s, 5m or 90d")
    return round(duration_seconds(found[1], found[2]) * 1_000_000)


def lateness_option(otherwise: str) -> Option:
    """Return the option, whose help ends with its default; the command receives `late_us_max`."""
    return click.option(
        "--max-late",
        "late_us_max",
        metavar="DURATION",
        callback=duration_us,
        help="Sort the events of all files by time; each may come this late in its file, "
        f"and waits so long in memory.  [default: {otherwise}]",
    )


def named_values(
    context: click.Context,  # noqa: ARG001
    parameter: click.Parameter,  # noqa: ARG001
    given: tuple[str, ...],
) -> dict[str, Any]:
    """Read values of the form NAME=VALUE; a value is JSON if it parses as such, otherwise text."""
    key: dict[str, Any] = {}
    for each in given:
        name, is_, text = each.partition("=")
        if not is_ or not name:
            raise click.BadParameter(f"expected NAME=VALUE, got `{each}`")
        try:
            value = json.loads(text, parse_constant=str)
        except (ValueError, RecursionError):
            value = text
        # A number beyond the range of a double would be infinite.
        is_scalar = isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
        key[name] = value if is_scalar else text
    return key


key_option: Option = click.option(
    "--key",
    metavar="NAME=VALUE",
    multiple=True,
    callback=named_values,
    help="With --rule: a key and its value, such as user=ada; once for each key. Valid JSON is "
    'read as JSON, so write the string "7" as \'"7"\'.',
)


_BYTES_MAX: Final = 8 * 1024 * 1024
"""The maximum size of variables. Each batch, of at most 16 MiB, repeats them."""


def _read(_context: click.Context, _option: click.Parameter, path: Path | None) -> dict[str, Any] | None:
    """Read `--vars FILE`."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            raw = file.read(_BYTES_MAX + 1)
        if len(raw) > _BYTES_MAX:
            raise click.BadParameter(f"{path}: it has more than {_BYTES_MAX >> 20} MiB")
        given = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_number)
        if not isinstance(given, dict):
            raise click.BadParameter(f"{path}: expected an object, got {json_type(given)}")
        object_json(given, "vars")
        json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
    except OSError as error:
        raise click.BadParameter(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise click.BadParameter(f"{path}, {where}: it is not JSON: {error.msg.lower()}") from None
    except UnicodeEncodeError:
        raise click.BadParameter(f"{path}: a string holds half of a surrogate pair") from None
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path}: byte {error.start} is not valid UTF-8") from None
    except RecursionError:
        raise click.BadParameter(f"{path}: it is nested too deeply") from None
    except (ValueError, ServiceError) as error:
        raise click.BadParameter(f"{path}: {error}") from None
    for name in given:
        if name.startswith("$"):
            raise click.BadParameter(f"{path}: name `{name}` without its `$`: `{name[1:]}`")
    return given


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


vars_option: Option = click.option(
    "--vars",
    "variables",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_read,
    help="JSON object with the values of names with `$`, and with relations, for every event: "
    '`{"limit": 100, "owns": [["ada", 7]]}` gives `$limit`, and the tuples of `owns`.',
)
"""The command receives `variables`: the object, or None."""
