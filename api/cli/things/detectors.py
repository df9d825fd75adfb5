"""`rule-detector detectors`: manages the detectors of a running service."""

import click

from api.cli.lookup import find_detector
from api.cli.options.service_options import service_and_output_options
from api.cli.printing.output import show, tell, yes_option
from rule_detector_client import Client, calls


@click.group()
def detectors() -> None:
    """List, create, copy and delete the detectors of a running service."""


@detectors.command("list")
@service_and_output_options
def list_(*, client: Client, output: str) -> None:
    """List the detectors, in order of creation."""
    found = list(client.detectors())
    show(output, found, ("id", "name"), ((one.id, one.name) for one in found))


@detectors.command()
@click.argument("name")
@service_and_output_options
def create(*, client: Client, name: str, output: str) -> None:
    """Create a detector and print its id. Names need not be unique."""
    created = client.send(calls.create_detector(name))
    tell(output, created, created.id)


@detectors.command()
@click.argument("detector", metavar="ID|NAME")
@click.option("--name", required=True, help="The name of the new detector; it need not be unique.")
@service_and_output_options
def fork(*, client: Client, detector: str, name: str, output: str) -> None:
    """Copy a detector with its rules and state, and print the new id.

    The rules of the copy have new ids. From then on the two detectors are independent.
    """
    forked = client.send(calls.fork_detector(find_detector(client, detector).id, name))
    tell(output, forked, forked.id)


@detectors.command()
@click.argument("detector", metavar="ID|NAME")
@yes_option
@service_and_output_options
def delete(*, client: Client, detector: str, yes: bool, output: str) -> None:
    """Delete a detector with its rules and its state."""
    found = find_detector(client, detector)
    if not yes:
        click.confirm(f"Delete the detector `{found.name}` with its rules and state?", abort=True, err=True)
    deleted = client.send(calls.delete_detector(found.id))
    tell(output, deleted, f"The detector `{found.name}` is deleted.")
