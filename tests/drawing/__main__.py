"""`python -m tests.drawing` draws the pictures of engine/SEMANTICS.md anew."""

from pathlib import Path

from tests.drawing.picture import svg
from tests.drawing.traces import drawn

ENGINE = Path(__file__).parents[2] / "engine"

if __name__ == "__main__":
    for name, trace in drawn((ENGINE / "SEMANTICS.md").read_text("utf-8")).items():
        (ENGINE / "drawings" / f"{name}.svg").write_text(svg(trace), "utf-8")
