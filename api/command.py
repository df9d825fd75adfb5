"""The command `rule-detector` as it is installed, with its packages or without them."""

import gc
import sys
from typing import Final

NOT_NEEDED: Final = ("httpx._main", "httpcore._sync.http2", "httpcore._async.http2")
"""What httpx does without: a command of its own, and HTTP/2. To import rich, pygments and h2 takes long."""
OWN: Final = ("api", "engine", "snapshots", "rule_detector_client")


def main() -> None:
    """Run the command. Say what to do if one of its packages is missing."""
    for name in NOT_NEEDED:
        sys.modules[name] = None  # type: ignore[assignment]  # as `import` documents it
    # What is imported stays; to look for garbage among it meanwhile takes a fifth of the time.
    gc.disable()
    try:
        from api.cli import main as run  # noqa: PLC0415 -- imports the packages

        gc.freeze()
        gc.enable()
        run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN:
            raise
        sys.exit(
            f"rule-detector: the package `{error.name}` is missing. Only the libraries were installed; "
            "`pip install` without `--no-deps` installs what the command needs, too."
        )
    finally:
        # At its end, Python would search all that is there for circles, a large file among it.
        gc.freeze()
