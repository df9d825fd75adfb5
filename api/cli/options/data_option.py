"""The option of the data folder, for commands that work on it without the service."""

from collections.abc import Callable
from pathlib import Path

import click


def data_option(
    meaning: str = "Data folder of the service.",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option, which is required; the command receives `data`."""
    return click.option(
        "--data",
        required=True,
        metavar="DIR",
        envvar="RULE_DETECTOR_DATA",
        type=click.Path(file_okay=False, path_type=Path),
        help=f"{meaning}  [env RULE_DETECTOR_DATA]",
    )
