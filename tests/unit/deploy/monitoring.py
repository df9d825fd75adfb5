"""The dashboard and the alert rules that the project ships, and the expressions in them."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "api" / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DELIVER_ALERTS = DEPLOY / "prometheus" / "deliver-alerts.yaml"
DASHBOARD = DEPLOY / "grafana" / "dashboard.json"

_METRIC = re.compile(r"\b(?:rule_detector|process)_[a-z_]+")
_GROUPED = re.compile(r"\b(?:by|without) \(([^)]*)\)")
_SELECTED = re.compile(r"([a-z_]+) *(?:=~|!=|=)\"")


def alerts(file: Path = ALERTS) -> list[dict[str, Any]]:
    """The alert rules of a file."""
    (group,) = yaml.safe_load(file.read_text("utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard that show something."""
    found = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def dashboard_expressions() -> list[str]:
    """The dashboard's expressions, as Prometheus gets them."""
    return [
        target["expr"].replace("$__rate_interval", "5m") for panel in panels() for target in panel["targets"]
    ]


def metrics_in(expression: str) -> set[str]:
    """The names of the metrics in an expression."""
    return set(_METRIC.findall(expression))


def labels_in(expression: str) -> set[str]:
    """The labels by which an expression selects or groups."""
    grouped = {name.strip() for names in _GROUPED.findall(expression) for name in names.split(",")}
    return grouped | set(_SELECTED.findall(expression))
