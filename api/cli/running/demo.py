"""`rule-detector demo`: starts a service and replays the sample recording."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from api.cli.lookup import add_rules
from api.cli.messages import CommandError
from api.cli.recordings.reading import ReadingOptions
from api.cli.replaying.replay import Replay
from api.cli.rule_files.reading import conditions_of
from api.cli.sample import RECORDING, RULES
from api.schema.examples import EVENT
from api.settings import Settings
from rule_detector_client import Client, ServiceError, calls

if TYPE_CHECKING:
    from api.process.supervisor import Running

DETECTOR = "logins"


@click.command(
    epilog="""\b
Examples:
  rule-detector demo           keep serving until Ctrl-C, for trying it with curl
  rule-detector demo --exit    stop once the table is printed
"""
)
@click.option("--exit", "end", is_flag=True, help="Stop once the table is printed.")
def demo(end: bool) -> None:
    """Start a service, replay a sample recording, and print which rules fire.

    The service uses a free port and a temporary folder, which is removed at the end. The recording covers
    forty minutes of an online shop, with an attack on its logins in the middle. Afterwards the demo prints
    curl commands to continue with, and serves until Ctrl-C.
    """
    # Imported late, because importing Ray and Quart takes a second, which --help should not.
    from api.process.listening import StartError  # noqa: PLC0415
    from api.process.supervisor import Running, UnsavedError, run  # noqa: PLC0415

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
            raise CommandError(str(error)) from None
    if failure:
        raise CommandError(failure[0])


def _show(running: "Running", console: Console, end: bool) -> None:
    """Create the detector, replay the recording and print everything. Raises ServiceError."""
    assert running.token is not None, "a new folder has no token, so the first is minted"
    conditions = conditions_of(RULES.read_text("utf-8"), RULES.name)
    shown = conditions[4]
    with Client(running.url, running.token) as client:
        detector_id = client.send(calls.create_detector(DETECTOR)).id
        add_rules(client, detector_id, conditions)
        click.echo(f"\nThe detector `{DETECTOR}` has {len(conditions)} rules. One of them, `{shown.name}`:\n")
        click.echo("  " + shown.text.strip().replace("\n", "\n  ") + "\n")
        replay = Replay(client, detector_id, console)
        failed = replay.run([str(RECORDING)], ReadingOptions("time"))
        if failed is not None:
            raise ServiceError(failed)
        click.echo()
        replay.show()
    click.echo(f"\nService   {running.url}\nToken     {running.token}\nDetector  {detector_id}")
    click.echo(f"To try    {running.url}/console, {running.url}/docs")
    if not end:
        click.echo("\nContinue in another terminal; Ctrl-C ends the demo.\n")
        click.echo(curl_lines(running.url, running.token, detector_id))


def curl_lines(url: str, token: str, detector_id: str) -> str:
    """Return two commands to continue with: list the rules, and send an event that makes one fire."""
    event = {"event": EVENT}
    head = f"curl -s -H 'Authorization: Bearer {token}'"
    rules = f"{url}/api/detectors/{detector_id}/rules"
    evaluate = f"{url}/api/detectors/{detector_id}/evaluate"
    body = json.dumps(event, allow_nan=False)
    return f"{head} {rules}\n{head} -H 'Content-Type: application/json' -d '{body}' {evaluate}"
