"""The project's own recording: a login stream with a credential-stuffing burst, and rules for it."""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
RECORDING: Final = FOLDER / "logins.ndjson.gz"
RULES: Final = FOLDER / "logins.rules.yaml"
