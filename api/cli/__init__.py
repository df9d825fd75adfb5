"""`rule-detector`: the group of its commands, one file for each."""

from typing import Any, Final

import click

from api.cli.applying.command import apply
from api.cli.applying.export import export
from api.cli.check import check
from api.cli.delivering.command import deliver
from api.cli.explain import explain
from api.cli.failures import CommandError
from api.cli.inspection.command import inspect
from api.cli.inspection.repair import repair
from api.cli.printing.terminal import escaping_streams
from api.cli.replaying.command import replay
from api.cli.running.backup import backup, restore
from api.cli.running.cluster import cluster
from api.cli.running.demo import demo
from api.cli.running.moving import drain, move, undrain
from api.cli.running.retry import retry
from api.cli.running.serve import serve
from api.cli.running.token import token
from api.cli.sigma.command import sigma
from api.cli.testing.command import test
from api.cli.things.detectors import detectors
from api.cli.things.relations import relations
from api.cli.things.rules import rules
from api.cli.things.shadow import shadow
from api.cli.things.state import state
from api.cli.things.tokens import tokens
from api.cli.trying.command import trial
from engine.runtime.contract.build import build_version
from rule_detector_client import ServiceError
from snapshots.errors import StorageError

COMMANDS = {
    "Try it": (demo,),
    "Rules and events": (check, trial, test, replay, explain, sigma),
    "Detectors and rules of a running service": (
        *(apply, export, detectors, rules, relations, shadow, tokens, state, deliver),
    ),
    "Run a service": (serve, token, cluster, move, drain, undrain, inspect, repair, retry, backup, restore),
}
"""The commands by their headings in --help."""

_INTERRUPTED: Final = 130
"""The exit status that shells give a program that SIGINT ends."""


class _Headed(click.Group):
    """A group that lists its commands under headings."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(one.name or "", one.get_short_help_str(100)) for one in commands])

    def main(self, *args: Any, **given: Any) -> Any:
        """Run the program, and escape all that it prints, messages about wrong usage included."""
        with escaping_streams():
            return super().main(*args, **given)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Ctrl-C ends it silently: a command that follows a stream ends in no other way."""
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
        # Otherwise click would remove control sequences, where it does not write to a terminal.
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
    """Evaluate rules over streams of events, with memory of what came before.

    A detector has rules and receives events; each reply names the rules that are true now. A rule can look
    back in time: "a payment within fifteen minutes of a new password, with no logout in between".
    """


for _commands in COMMANDS.values():
    for _command in _commands:
        main.add_command(_command)
