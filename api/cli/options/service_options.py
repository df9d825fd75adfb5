"""The options of a command that calls the service: its address and a token."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from api.cli.messages import warn
from api.cli.printing.output import output_option
from api.secret_files import SecretFileError, read_secret, readable_by_others
from rule_detector_client import Client, ServiceError

C = TypeVar("C")

_QUIET_S: Final = 3.0
"""After this time, a command reports why it still waits."""


def service_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --url, and --token or --token-file, one of which is required; the command receives `client`.

    If the command's option --data is given, it needs no service and receives None.
    """

    @functools.wraps(command)
    def with_client(*, connect: Callable[..., Client], **given: Any) -> None:
        if given.get("data") is not None:
            command(client=None, **given)
            return
        with connect(Client, on_retry=_waits()) as client:
            command(client=client, **given)

    return connection_options(with_client)


def _waits() -> Callable[[ServiceError, float], None]:
    """Return a function that reports once why a command waits."""
    told: list[ServiceError] = []

    def tell(error: ServiceError, waited_s: float) -> None:
        if waited_s >= _QUIET_S and not told:
            told.append(error)
            warn(f"waiting for up to a minute: {error}")

    return tell


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the same options; the command receives `connect`, which makes a client of a given class."""

    @functools.wraps(command)
    def with_connect(
        *, url: str, ca_file: Path | None, token: str | None, token_file: Path | None, **given: Any
    ) -> None:
        secret = "" if given.get("data") is not None else _chosen(token, token_file)

        def connect(client: Callable[..., C], **more: Any) -> C:
            return client(url, secret, ca_file=ca_file, **more)

        command(connect=connect, **given)

    for option in reversed(_OPTIONS):
        with_connect = option(with_connect)
    return with_connect


def service_and_output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --output, too; the command receives `client` and `output`."""
    return output_option(service_options(command))


_OPTIONS = (
    click.option(
        "--url",
        default="http://127.0.0.1:8080",
        envvar="RULE_DETECTOR_URL",
        help="Address of the service.  [env RULE_DETECTOR_URL; default http://127.0.0.1:8080]",
    ),
    click.option(
        "--ca-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar="RULE_DETECTOR_CA_FILE",
        help="File with the certificates of trusted authorities, as PEM.  "
        "[env RULE_DETECTOR_CA_FILE; default: the system's]",
    ),
    click.option(
        "--token",
        envvar="RULE_DETECTOR_TOKEN",
        help="Token of the service. Other users of the machine can read an option in the process list; "
        "prefer the variable or the file.  [env RULE_DETECTOR_TOKEN]",
    ),
    click.option(
        "--token-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar="RULE_DETECTOR_TOKEN_FILE",
        help="File that holds the token.  [env RULE_DETECTOR_TOKEN_FILE]",
    ),
)


def _chosen(token: str | None, token_file: Path | None) -> str:
    """Return the token; the command line takes precedence over variables. Raises click.UsageError."""
    context = click.get_current_context()
    typed = {
        name
        for name in ("token", "token_file")
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    if len(typed) > 1 or (token and token_file and not typed):
        raise click.UsageError("`--token` and `--token-file` exclude each other.")
    if token_file is not None and "token" not in typed:
        try:
            return secret_in(token_file)
        except SecretFileError as error:
            raise click.UsageError(f"--token-file: {error}") from None
    if not token:
        raise click.UsageError("A token is needed: `--token`, `--token-file` or RULE_DETECTOR_TOKEN.")
    return token


def secret_in(path: Path) -> str:
    """Return the secret in a file, and warn if others can read it. Raises SecretFileError."""
    found = read_secret(path)
    if warning := readable_by_others(path):
        warn(warning)
    return found
