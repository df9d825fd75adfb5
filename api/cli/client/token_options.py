"""The options with which a command is given a token: --token and --token-file, or their variables."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from api.cli.failures import warn
from api.secret_files import SecretFileError, read_secret, readable_by_others


def token_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --token and --token-file, one of which is required; the command receives `token`."""

    @functools.wraps(command)
    def with_token(*, token: str | None, token_file: Path | None, **given: Any) -> None:
        command(token=_chosen(token, token_file), **given)

    with_file = click.option(
        "--token-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar="RULE_DETECTOR_TOKEN_FILE",
        help="File that holds the token.  [env RULE_DETECTOR_TOKEN_FILE]",
    )(with_token)
    return click.option(
        "--token",
        envvar="RULE_DETECTOR_TOKEN",
        help="Token of the service. Every user of the machine can read an option in the process list; prefer "
        "the variable or the file.  [env RULE_DETECTOR_TOKEN]",
    )(with_file)


def _chosen(token: str | None, token_file: Path | None) -> str:
    """Return the token, from the command line rather than a variable. Raises click.UsageError."""
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
            found = read_secret(token_file)
        except SecretFileError as error:
            raise click.UsageError(f"--token-file: {error}") from None
        if warning := readable_by_others(token_file):
            warn(warning)
        return found
    if not token:
        raise click.UsageError("A token is needed: `--token`, `--token-file` or RULE_DETECTOR_TOKEN.")
    return token
