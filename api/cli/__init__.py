"""`rule-detector`: the group of its commands, one file for each."""

import click

from api.cli.check import check
from api.cli.demo import demo
from api.cli.inspect import inspect
from api.cli.replay import replay
from api.cli.retry import retry
from api.cli.serve import serve
from api.cli.token import token


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
