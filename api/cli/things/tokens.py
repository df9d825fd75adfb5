"""`rule-detector tokens`: the tokens of a running service."""

import click

from api.cli.options.service_options import service_and_output_options
from api.cli.printing.output import show, tell, yes_option
from api.cli.recordings.times import iso
from rule_detector_client import Client, calls


@click.group()
def tokens() -> None:
    """List, create and revoke the tokens of a running service."""


@tokens.command("list")
@service_and_output_options
def list_(*, client: Client, output: str) -> None:
    """List the tokens without their secrets, in order of creation.

    The time of the last use is right to about a minute, and may be lost when the service restarts.
    """
    found = client.send(calls.list_tokens())
    rows = ((one.id, one.name, one.hint, _time(one.created_ms), _time(one.used_ms)) for one in found)
    show(output, {"tokens": found}, ("id", "name", "ends in", "created at", "used at"), rows)


@tokens.command()
@click.argument("name", required=False)
@service_and_output_options
def create(*, client: Client, name: str | None, output: str) -> None:
    """Create a token and print it. NAME says what it is for. The token is never shown again."""
    created = client.send(calls.create_token(name))
    tell(output, created, created.token)
    if output == "table":
        click.echo(f"Its id is {created.id}. Only a digest is stored.", err=True)


@tokens.command()
@click.argument("token_id", metavar="ID")
@yes_option
@service_and_output_options
def revoke(*, client: Client, token_id: str, yes: bool, output: str) -> None:
    """Revoke a token. It is refused from now on."""
    if not yes:
        click.confirm(f"Revoke the token {token_id}?", abort=True, err=True)
    revoked = client.send(calls.revoke_token(token_id))
    tell(output, revoked, f"The token {token_id} is revoked.")


def _time(at_ms: int | None) -> str:
    return "" if at_ms is None else iso(at_ms * 1_000)
