"""The sources of settings: options, the environment, and the file of the bootstrap token."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from api.secret_files import SecretFileError, read_secret
from api.setting import PREFIX, SettingsError, variable_of
from api.settings import Settings, settings
from engine.language.diagnostics import did_you_mean

_STANDARD_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""OpenTelemetry's variable for the collector's address."""

TRACING_HINT: Final = "in a checkout, pip install -c constraints.txt '.[tracing]'"
"""How to install the packages that send spans."""

_OTHER_VARIABLES: Final = frozenset(
    PREFIX + name for name in ("TEST_DATA", "URL", "CA_FILE", "TOKEN", "TOKEN_FILE")
)
"""Variables with the same prefix, for the tests and for the commands that call a running service."""


def settings_from(given: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """Return the settings: from `given`, by name, else from the environment, else the defaults.

    None counts as not given, an empty variable as not set. Raises SettingsError with all defects.
    """
    known = _names()
    values: dict[str, Any] = {name: value for name in known if (value := environment.get(variable_of(name)))}
    values |= {name: given[name] for name in known if given.get(name) is not None}
    if "otlp_endpoint" not in values and (endpoint := environment.get(_STANDARD_ENDPOINT)) and can_trace():
        values["otlp_endpoint"] = endpoint
    defects = [f"{name}: no such setting" for name in given if name not in known]
    if "bootstrap_token" in values and "bootstrap_token_file" in values:
        defects.append("bootstrap_token_file: bootstrap_token is set too; only one of them can be")
    elif "bootstrap_token_file" in values:
        try:
            values["bootstrap_token"] = read_secret(Path(values["bootstrap_token_file"]))
        except SecretFileError as error:
            defects.append(f"bootstrap_token_file: {error}")
    try:
        found = Settings(**values)
    except SettingsError as error:
        told = [said + _origin(said.partition(":")[0], given, environment) for said in error.defects]
        raise SettingsError(*defects, *told) from None
    if defects:
        raise SettingsError(*defects)
    return found


def _origin(name: str, given: Mapping[str, object], environment: Mapping[str, str]) -> str:
    """Name the variable that a setting comes from, if it comes from one."""
    variable = variable_of(name)
    return f" (from {variable})" if given.get(name) is None and environment.get(variable) else ""


def _names() -> list[str]:
    return [one.name for one in settings()]


def can_trace() -> bool:
    """Whether the packages of the extra `tracing` are installed."""
    try:
        return all(map(find_spec, ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")))
    except ImportError:
        return False


def tracing_warning(environment: Mapping[str, str], chosen: Settings) -> str | None:
    """Return a warning if a collector is set for all programs but this one sends it no spans."""
    if chosen.otlp_endpoint is None and environment.get(_STANDARD_ENDPOINT):
        return f"{_STANDARD_ENDPOINT} is set, but no spans are sent to it: {TRACING_HINT}"
    return None


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with the prefix of settings that name none, each with the end of a warning.

    They have no effect.
    """
    known = sorted(_OTHER_VARIABLES.union(map(variable_of, _names())))
    unknown = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    return {name: did_you_mean(name, known) for name in unknown}
