"""Names that were given up for the field's own: none of them comes back."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("engine", "api", "snapshots")
DEPLOYED = ("api/deploy/prometheus/alerts.yaml", "api/deploy/grafana/dashboard.json")

GIVEN_UP = {
    "amiss": "problems",
    "anatomy": "requirements",
    "awake": "active, triggering",
    "crowd, crowded, crowds": "connection limit, dense",
    "guest, guests, stranger, strangers": "unauthenticated, caller, another user",
    "lane, lanes": "detector queue",
    "life, lives": "activation, owner",
    "remark, remarked, remarks": "warning",
    "residency": "activation slots",
    "tidied, tidy, tidying": "expiry, delete",
    "troubles": "problems",
    "wake, wakes, woke, woken": "activate, trigger",
}
OLD = {word for words in GIVEN_UP for word in words.split(", ")}
DEFINED = re.compile(r"^ *(?:class|(?:async )?def) (\w+)", re.MULTILINE)


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def named(node: ast.AST) -> str:
    """Give the name that a node of product code has or uses: settings, options and metrics are among them."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return name
        case ast.Constant(value=str(name)) if re.fullmatch(r"\w+", name):
            return name
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
    return ""


def names() -> Iterator[tuple[str, str]]:
    """Give each name with where it is. Of tests, only what they define has one."""
    for folder in (*PRODUCT, "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path), path.stem
            source = path.read_text("utf-8")
            if folder in PRODUCT:
                yield from {(str(path), named(node)) for node in ast.walk(ast.parse(source))}
            else:
                yield from ((str(path), name) for name in DEFINED.findall(source))
    for file in DEPLOYED:
        for name in re.findall(r"rule_detector_\w+|RuleDetector\w+", (ROOT / file).read_text("utf-8")):
            yield file, name


def test_no_name_that_was_given_up_comes_back() -> None:
    seen = set(names())
    assert {"front_ends", "detectors_lost", "RuleDetectorActivationThrashing"} <= {name for _, name in seen}
    given_up = {name for name in {name for _, name in seen} if words(name) & OLD}
    assert {(where, name) for where, name in seen if name in given_up} == set()
