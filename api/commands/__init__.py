"""`rule-detector`: the group of its commands, one file for each."""

import click

from api.commands.check import check
from api.commands.demo import demo
from api.commands.inspect import inspect
from api.commands.replay import replay
from api.commands.retry import retry
from api.commands.serve import serve
from api.commands.token import token


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `rule-detector demo`. Each command says more with --help.",
)
@click.version_option(package_name="rule-detector", prog_name="rule-detector")
def main() -> None:
    """Rules over streams of events, with memory: a service, and the tools around it.

    A detector keeps rules; a rule is a condition on an event and on what came before it. Events go in, and
    out come the rules that hold: "a payment within fifteen minutes of a new password, with no logout in
    between".
    """


main.add_command(demo)
main.add_command(serve)
main.add_command(token)
main.add_command(check)
main.add_command(replay)
main.add_command(inspect)
main.add_command(retry)
