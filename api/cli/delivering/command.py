"""`rule-detector deliver`: delivers firings to a webhook, a file or standard output."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from api.cli.messages import CommandError, warn
from api.cli.options.service_options import connection_options, secret_in
from api.secret_files import SecretFileError
from rule_detector_client import AsyncClient

if TYPE_CHECKING:
    from api.cli.delivering.deliveries import Deliveries

_TEMPLATES: Final = ("generic", "slack", "cloudevents")
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


def _secret(_context: click.Context, _option: click.Parameter, path: Path | None) -> str | None:
    """Read the secret in a file."""
    try:
        return None if path is None else secret_in(path)
    except SecretFileError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    epilog="""\b
Examples:
  rule-detector deliver --all --to-file slack-url --template slack --state deliver.json
  rule-detector deliver --detector logins --to https://alerts.example.com/hook --secret-file key
  rule-detector deliver --detector logins --to fired.ndjson --state deliver.json

Exit status: 0 ended by a signal, 1 the service refused or a file cannot be used, 2 wrong usage.
"""
)
@connection_options
@click.option("--detector", "detectors", metavar="ID|NAME", multiple=True, help="Detector. Can be repeated.")
@click.option("--all", "every", is_flag=True, help="Follow all detectors, including later ones.")
@click.option("--to", metavar="URL|FILE|-", help="Address for POST requests, file to append lines to, or -.")
@click.option(
    "--to-file",
    "to_secret",
    metavar="FILE",
    type=_FILE,
    callback=_secret,
    help="File that holds the address, if the address is a secret.",
)
@click.option("--state", type=_FILE, metavar="FILE", help="File that stores what has been delivered.")
@click.option(
    "--template",
    default="generic",
    metavar="|".join((*_TEMPLATES, "FILE")),
    help="Format of the delivered firings.  [default: generic]",
)
@click.option(
    "--secret-file",
    "secret",
    metavar="FILE",
    type=_FILE,
    callback=_secret,
    help="File that holds the key with which requests are signed.",
)
@click.option(
    "--dead-letters",
    type=_FILE,
    metavar="FILE",
    help="File for firings that the target refuses for good; they are appended.",
)
@click.option(
    "--attempts",
    type=click.IntRange(1),
    default=5,
    metavar="N",
    help="How often the target may refuse a firing before it is a dead letter.  [default: 5]",
)
@click.option(
    "--timeout-s",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    metavar="N",
    help="Timeout of a request to the target, in seconds.  [default: 30]",
)
@click.option("--metrics-port", type=click.IntRange(0, 65535), metavar="N", help="Port for metrics.")
@click.option(
    "--metrics-host", default="127.0.0.1", metavar="HOST", help="Address of that port.  [default: 127.0.0.1]"
)
def deliver(
    *,
    connect: Callable[..., AsyncClient],
    detectors: tuple[str, ...],
    every: bool,
    to: str | None,
    to_secret: str | None,
    secret: str | None,
    state: Path | None,
    template: str,
    dead_letters: Path | None,
    attempts: int,
    timeout_s: float,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Deliver firings to a webhook, a file or standard output, until a signal ends the command.

    Reads the feeds of detectors: the firings of rules with `notify`. Starts with new firings; with --state,
    continues where it ended. Each firing is delivered at least once, and those of a detector in order.

    Failed requests are retried, after a longer wait each time. 3xx and 4xx are refusals, except 408, 425 and
    429: with --dead-letters, a firing that was refused --attempts times is written there.
    """
    if bool(detectors) == every:
        raise click.UsageError("Give either `--detector` or `--all`.")
    address = to if to_secret is None else to_secret
    if address is None or None not in (to, to_secret):
        raise click.UsageError("Give either `--to` or `--to-file`.")
    # Imported late, because it is slow, and --help should not be.
    from api.cli.delivering.deliveries import DeadLetters, Deliveries, Figures  # noqa: PLC0415
    from api.cli.delivering.places import Places, PlacesError  # noqa: PLC0415
    from api.cli.delivering.targets import Appended, TargetError, target_of  # noqa: PLC0415
    from api.cli.delivering.templates import TemplateError, form_of  # noqa: PLC0415

    try:
        target = target_of(address, secret, timeout_s)
        places = Places(state, target.sync, every=every)
        figures = Figures()
        if metrics_port is not None:
            port = figures.serve(metrics_host, metrics_port)
            click.echo(f"Metrics at http://{metrics_host}:{port}/metrics", err=True)
        deliveries = Deliveries(
            connect(AsyncClient, connections_max=None),
            target,
            form_of(template),
            places,
            DeadLetters(Appended(dead_letters), attempts) if dead_letters else None,
            figures,
            warn,
            detectors or None,
            lambda: click.echo(
                f"Delivering what rules with `notify` fire to {target}; Ctrl-C ends it.", err=True
            ),
        )
        asyncio.run(_until_signalled(deliveries))
    except (TargetError, TemplateError) as error:
        raise click.UsageError(str(error)) from None
    except PlacesError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename or target}: {(error.strerror or str(error)).lower()}") from None


async def _until_signalled(deliveries: "Deliveries") -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    async with deliveries.client:
        await deliveries.run(stop)
