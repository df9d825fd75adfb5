"""`rule-detector`: the group of its commands."""

from importlib import import_module
from typing import Any, Final

import click

from api.cli.messages import CommandError
from api.cli.printing.terminal import escaping_streams
from engine.runtime.contract.build import build_version
from rule_detector_client import ServiceError
from snapshots.errors import StorageError

COMMANDS: Final[dict[str, dict[str, str]]] = {
    "Try it": {"demo": "running.demo:demo"},
    "Rules and events": {
        "check": "check:check",
        "try": "trying.command:trial",
        "test": "trying.testing:test",
        "replay": "replaying.command:replay",
        "explain": "explain:explain",
        "sigma": "sigma.command:sigma",
    },
    "Detectors and rules of a running service": {
        "apply": "applying.command:apply",
        "export": "applying.export:export",
        "detectors": "things.detectors:detectors",
        "rules": "things.rules:rules",
        "relations": "things.relations:relations",
        "shadow": "things.shadow:shadow",
        "tokens": "things.tokens:tokens",
        "changes": "things.tokens:changes",
        "state": "things.state:state",
        "deliver": "delivering.command:deliver",
    },
    "Run a service": {
        "serve": "running.serve:serve",
        "token": "running.offline:token",
        "cluster": "running.cluster:cluster",
        "move": "running.cluster:move",
        "drain": "running.cluster:drain",
        "undrain": "running.cluster:undrain",
        "inspect": "inspection.command:inspect",
        "repair": "inspection.command:repair",
        "retry": "running.offline:retry",
        "backup": "running.offline:backup",
        "restore": "running.offline:restore",
    },
}
"""The commands by their headings in --help, each as module and function, which are imported when used."""

_INTERRUPTED: Final = 130
"""The exit status that shells report for a program ended by SIGINT."""


class _Headed(click.Group):
    """A group that lists its commands under headings, and imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(name for names in COMMANDS.values() for name in names), *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for places in COMMANDS.values():
            if cmd_name in places:
                module, _, function = places[cmd_name].partition(":")
                command: click.Command = getattr(import_module(f"api.cli.{module}"), function)
                return command
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in COMMANDS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl([(name, one.get_short_help_str(100)) for name, one in commands if one])

    def main(self, *args: Any, **given: Any) -> Any:
        """Run the program, and escape all its output, including messages about wrong usage."""
        with escaping_streams():
            return super().main(*args, **given)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Ctrl-C ends it silently, as commands that follow a stream have no other end."""
        try:
            return super().invoke(ctx)
        except (ServiceError, StorageError) as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(f"rule-detector, version {build_version()}")
        ctx.exit()


@click.group(
    cls=_Headed,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        # Otherwise click would remove control sequences when it does not write to a terminal.
        "color": True,
    },
    epilog="Start with `rule-detector demo`. `rule-detector COMMAND --help` explains each command.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Evaluate rules over streams of events, with memory of earlier events.

    A detector has rules and receives events; each reply names the rules that are true now. Rules can look
    back in time: "a payment within fifteen minutes of a new password, with no logout in between".
    """
