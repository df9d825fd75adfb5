"""`rule-detector serve`: runs the service in the foreground; every setting is an option."""

import os
from collections.abc import Callable
from typing import Any

import click

from api.cli.messages import CommandError, warn
from api.secret_files import readable_by_others
from api.setting import Setting, SettingsError
from api.settings import settings
from api.settings_sources import settings_from, tracing_warning, unknown_variables


def setting_option(setting: Setting) -> Callable[[Any], Any]:
    """Return the option of one setting. The settings check its value."""
    notes = [f"env {setting.variable}"]
    if setting.shown_default:
        notes.append(f"default {setting.shown_default}")
    help_text = f"{setting.text}  [{'; '.join(notes)}]"
    if setting.type is click.BOOL:
        negation = setting.option.replace("--", "--no-", 1)
        return click.option(f"{setting.option}/{negation}", setting.name, default=None, help=help_text)
    metavar = {"text": "TEXT", "path": "PATH"}.get(setting.type.name, "NUMBER")
    if isinstance(setting.type, click.Choice):
        metavar = "|".join(setting.type.choices)
    return click.option(setting.option, setting.name, metavar=metavar, help=help_text)


def with_setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all settings, in order."""
    for setting in reversed(settings()):
        command = setting_option(setting)(command)
    return command


@click.command(
    epilog="""\b
Examples:
  rule-detector serve --data /var/lib/rule-detector
  rule-detector serve --host 0.0.0.0 --port 80 --max-resident 200
  RULE_DETECTOR_PORT=9000 rule-detector serve
"""
)
@with_setting_options
def serve(**given: object) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Prints its address and, if the data folder has no token yet, the first token, which every call needs. All
    data is stored in the data folder, which only services of one Ray cluster can share. An embedded Ray is
    started, or a cluster joined with --ray-address. Options take precedence over environment variables.
    """
    try:
        chosen = settings_from(given, os.environ)
    except SettingsError as error:
        raise click.UsageError("\n".join(error.defects)) from None
    for name, meant in unknown_variables(os.environ).items():
        warn(f"{name} is set, but there is no such setting{meant}")
    if (warning := tracing_warning(os.environ, chosen)) is not None:
        warn(warning)
    if given["bootstrap_token"] is not None:
        warn("everyone on this machine can read --bootstrap-token; --bootstrap-token-file keeps it secret")
    if chosen.bootstrap_token_file and (warning := readable_by_others(chosen.bootstrap_token_file)):
        warn(warning)

    # Imported late, because importing Ray and Quart takes a second, which --help should not.
    from api.process.listening import StartError  # noqa: PLC0415
    from api.process.supervisor import Running, UnsavedError, run  # noqa: PLC0415

    async def announce(running: Running) -> bool:
        lines = [f"The first token, shown only now: {running.token}"] if running.minted else []
        lines.append(f"Console at {running.url}/console, API documentation at {running.url}/docs")
        # One write with this line last, so that a program that waits for it has the token.
        click.echo("\n".join([*lines, f"Listening on {running.url}; Ctrl-C or SIGTERM ends it."]))
        return True

    try:
        run(chosen, announce)
    except (StartError, UnsavedError) as error:
        raise CommandError(str(error)) from None
    click.echo("Stopped.")
