"""`rule-detector demo`: the main job, once through, on the sample recording."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from api.cli.client.detectors import add_rules, create_detector
from api.cli.client.rule_files import conditions_of
from api.cli.client.service import Service, ServiceError
from api.cli.failures import fail
from api.cli.recorded.reading import Reading
from api.cli.replay import Replay
from api.cli.sample import RECORDING, RULES
from api.schema.operations import EVENT_EXAMPLE
from api.settings import Settings

if TYPE_CHECKING:
    from api.process.supervisor import Running

DETECTOR = "logins"


@click.command(
    epilog="""\b
Examples:
  rule-detector demo           serves on until Ctrl-C, to be tried with curl
  rule-detector demo --exit    ends when the table has been printed
"""
)
@click.option("--exit", "end", is_flag=True, help="End once the actions have been printed.")
def demo(end: bool) -> None:
    """Show the whole thing at work: service, rules, events, actions.

    Starts the service on a free port and a temporary folder, which goes when the demo ends. Creates a
    detector with the sample rules, replays the sample recording (forty minutes of an online shop's
    logins, with an attack in the middle), and prints which rules fired. Then it says how to go on with
    curl, and serves until Ctrl-C.
    """
    # Ray and Quart take a second to import, which --help need not wait for.
    from api.process.supervisor import Running, StartError, UnsavedError, run  # noqa: PLC0415

    console = Console()
    failure: list[str] = []

    async def show(running: Running) -> bool:
        try:
            await asyncio.to_thread(_show, running, console, end)
        except ServiceError as error:
            failure.append(str(error))
            return False
        return not end

    click.echo("Starting the service (Ray takes a few seconds) …")
    with tempfile.TemporaryDirectory(prefix="rule-detector-demo-") as folder:
        try:
            settings = Settings(data=Path(folder), port=0, shutdown_wait_s=0, slow_request_ms=0)
            run(settings, show)
        except (StartError, UnsavedError) as error:
            fail(str(error))
    if failure:
        fail(failure[0])


def _show(running: "Running", console: Console, end: bool) -> None:
    """Everything that the demo prints. Raises ServiceError."""
    assert running.token is not None, "a new folder has no token, so the first is minted"
    conditions = conditions_of(RULES.read_text("utf-8"), RULES.name)
    shown = conditions[4]
    with Service(running.url, running.token) as service:
        detector_id = create_detector(service, DETECTOR)
        add_rules(service, detector_id, conditions)
        click.echo(f"\nThe detector `{DETECTOR}` has {len(conditions)} rules. One of them, `{shown.name}`:\n")
        click.echo("  " + shown.text.strip().replace("\n", "\n  ") + "\n")
        replay = Replay(service, detector_id, console)
        failed = replay.run([str(RECORDING)], Reading("time"))
        if failed is not None:
            raise ServiceError(failed)
        click.echo()
        replay.show()
    click.echo(f"\nService   {running.url}\nToken     {running.token}\nDetector  {detector_id}")
    click.echo(f"To try    {running.url}/docs")
    if not end:
        click.echo("\nGo on in another terminal; Ctrl-C ends the demo.\n")
        click.echo(curl_lines(running.url, running.token, detector_id))


def curl_lines(url: str, token: str, detector_id: str) -> str:
    """Give two commands to go on with: one lists the rules, one sends an event that makes one fire."""
    event = {"event": EVENT_EXAMPLE}
    head = f"curl -s -H 'Authorization: Bearer {token}'"
    rules = f"{url}/api/detectors/{detector_id}/rules"
    evaluate = f"{url}/api/detectors/{detector_id}/evaluate"
    return f"{head} {rules}\n{head} -H 'Content-Type: application/json' -d '{json.dumps(event)}' {evaluate}"
