"""The configurations of SENDERS.md, as its readers copy them."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "api" / "SENDERS.md").read_text("utf-8")
SERVICE = "127.0.0.1:8080"


def block(name: str, port: int) -> str:
    """Return the block of code after a mark, with the port of a test in place of the service's."""
    found = re.search(rf"<!-- {re.escape(name)} -->\n```\w*\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, name
    text = found[1]
    assert SERVICE in text or name in {"kafka", "rsyslog"}, "it sends to the service"
    return text.replace(SERVICE, f"127.0.0.1:{port}")
