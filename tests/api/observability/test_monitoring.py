"""The dashboard and the alerts name only metrics and labels that a running service exports."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from api.http.app import Application
from api.settings import Settings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.local_runtime.service import local_service
from tests.unit.deploy.monitoring import alerts, dashboard_expressions, labels_in, metrics_in

# Prometheus itself adds these.
_OWN_LABELS = {"instance", "job"}


async def test_every_metric_and_label_of_dashboard_and_alerts_is_exported(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        caller = Caller(
            Application(Settings(data=tmp_path, bootstrap_token=BOOTSTRAP), service.backend), BOOTSTRAP
        )
        detector = await caller.detector()
        await caller.evaluate(detector, {}, timestamp_ms=1e9)
        # Refusals are exported once there are some.
        assert (await caller.evaluate(detector, {})).codes == [1402]
        text = (await caller.plain("GET", "/metrics")).text
    exported: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            exported.setdefault(sample.name, set()).update(sample.labels)
    expressions = [*dashboard_expressions(), *(rule["expr"] for rule in alerts())]
    for expression in expressions:
        names = metrics_in(expression)
        assert names or expression.startswith("up{"), expression
        assert names <= exported.keys(), expression
        known = {label for name in names for label in exported[name]}
        assert labels_in(expression) <= known | _OWN_LABELS, expression
    # And the other way round: what is exported is shown, or alerted on.
    used = {name for expression in expressions for name in metrics_in(expression)}
    shown = {name.removesuffix("_bucket").removesuffix("_total") for name in used}
    families = {family.name for family in text_string_to_metric_families(text)}
    unused = {name for name in families - shown if name.startswith("rule_detector_")}
    assert unused == set()
