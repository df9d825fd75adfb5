"""The command `rule-detector` as it is installed, with its packages or without them."""

import sys
from typing import Final

OWN: Final = ("api", "engine", "snapshots", "rule_detector_client")


def main() -> None:
    """Run the command. Say what to do if one of its packages is missing."""
    # httpx imports rich and pygments for a command of its own, unless they are missing. That takes long.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # as `import` documents it
    try:
        from api.cli import main as run  # noqa: PLC0415 -- imports the packages

        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN:
            raise
        sys.exit(
            f"rule-detector: the package `{error.name}` is missing. Only the libraries were installed; "
            "`pip install` without `--no-deps` installs what the command needs, too."
        )
