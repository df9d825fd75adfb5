"""Settings: where they come from, what is refused, what they become."""

from pathlib import Path

import click
import pytest

from api import settings_sources
from api.process import supervisor
from api.process.front_end import decode_settings, encode_settings
from api.process.listening import StartError
from api.setting import SettingsError
from api.settings import Settings, settings
from api.settings_sources import settings_from, tracing_warning, unknown_variables
from engine.language.limits import DEFAULT_LIMITS
from engine.runtime.contract.settings import RuntimeSettings

STRONG = "0123456789abcdef" * 2
"""The shortest secret."""

MIB = 1024 * 1024


def test_the_defaults_are_those_of_the_parts() -> None:
    chosen = Settings()
    assert chosen.limits() == DEFAULT_LIMITS
    # Nothing outside this machine connects to an embedded Ray.
    assert chosen.runtime_settings() == RuntimeSettings(data=chosen.data, transport="unix")
    joined = Settings(ray_address="127.0.0.1:6379")
    asked = {"worker_cpus": joined.worker_cpus, "worker_memory_bytes": joined.worker_memory_bytes}
    assert joined.runtime_settings() == RuntimeSettings(data=joined.data, **asked)
    assert settings_from({}, {}) == chosen


BOUNDS: dict[str, tuple[float, float | None]] = {
    "port": (0, 65_535),
    "probe_port": (0, 65_535),
    "front_ends": (1, 256),
    "slow_request_ms": (0, None),
    "detectors_per_worker": (1, 2_000),
    "spares": (0, None),
    "worker_cpus": (0, None),
    "worker_memory_bytes": (0, None),
    "passivate_after_s": (0.1, None),
    "tick_s": (0, None),
    "snapshot_interval_s": (0.1, None),
    "deadline_s": (0.1, None),
    "node_timeout_s": (0.5, None),
    "shutdown_wait_s": (0, None),
    "shutdown_grace_s": (0, None),
    "max_firings": (0, 100_000),
    "max_late_ms": (0, None),
    "max_ahead_ms": (0, None),
    "keep_alive_s": (0.1, None),
    "max_header_bytes": (1024, None),
    "max_memory_mb": (16, None),
    "max_reading_bytes": (1024 * 1024, None),
    "max_discard_bytes": (0, None),
    "max_body_depth": (4, 200),
    "max_condition_depth": (1, 90),
}
"""The bounds of all numbers, except those that are at least 1."""


def test_each_number_is_bounded() -> None:
    ranges = {
        one.name: one.type for one in settings() if isinstance(one.type, click.IntRange | click.FloatRange)
    }
    assert BOUNDS.keys() <= ranges.keys()
    assert {name: (one.min, one.max) for name, one in ranges.items()} == {
        name: BOUNDS.get(name, (1, None)) for name in ranges
    }


def test_what_is_given_comes_before_the_environment_and_that_before_the_default() -> None:
    environment = {"RULE_DETECTOR_PORT": "81", "RULE_DETECTOR_HOST": "::1"}
    chosen = settings_from({"port": "82", "data": "x", "deadline_s": None}, environment)
    assert (chosen.port, chosen.host, chosen.data, chosen.deadline_s) == (82, "::1", Path("x"), 30.0)


STANDARD = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [
        ({}, {}, None),
        ({}, STANDARD, "http://collector:4318"),
        ({}, {**STANDARD, "RULE_DETECTOR_OTLP_ENDPOINT": "https://ours"}, "https://ours"),
        ({"otlp_endpoint": "https://given"}, STANDARD, "https://given"),
    ],
)
def test_the_collector_is_that_of_the_setting_or_else_that_of_all_programs(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], environment: dict[str, str], found: str | None
) -> None:
    monkeypatch.setattr(settings_sources, "can_trace", lambda: True)
    chosen = settings_from(given, environment)
    assert chosen.otlp_endpoint == found
    assert tracing_warning(environment, chosen) is None


def test_without_the_packages_a_collector_of_all_programs_is_left_alone_and_one_of_ours_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (settings_sources, supervisor):
        monkeypatch.setattr(module, "can_trace", lambda: False)
    chosen = settings_from({}, STANDARD)
    assert chosen.otlp_endpoint is None
    assert "no spans are sent to it: in a checkout, pip install" in str(tracing_warning(STANDARD, chosen))
    supervisor._refuse_tracing(chosen)
    with pytest.raises(
        StartError, match="--otlp-endpoint needs packages that are not installed: in a checkout, pip install"
    ):
        supervisor._refuse_tracing(Settings(otlp_endpoint="http://collector:4318"))


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "http://", "http://a b"])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(SettingsError, match="otlp_endpoint: expected http://HOST:PORT"):
        Settings(otlp_endpoint=endpoint)


def test_every_setting_can_be_set_by_its_variable_and_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(STRONG)
    own = {"bootstrap_token": STRONG, "bootstrap_token_file": str(tmp_path / "secret")}
    own |= {"otlp_endpoint": "http://collector:4318", "cors_origin": "https://a.example"}
    examples = {"integer range": "500", "float range": "2.5", "boolean": "yes", "text": "x", "path": "/x"}
    for setting in settings():
        value = "250" if setting.name in {"max_ahead_ms", "max_body_depth", "max_condition_depth"} else None
        text = own.get(setting.name) or value or examples.get(setting.type.name, "")
        more = {"max_body_bytes": "500"} if setting.name == "max_batch_body_bytes" else {}
        if setting.name == "front_ends":
            more = {"max_reading_bytes": "10000000000"}
        # These go together.
        together = {"tls_cert": ("tls_key", "/x"), "tls_key": ("tls_cert", "/x")}
        together["metrics_host"] = ("probe_port", "90")
        if setting.name in together:
            more = dict([together[setting.name]])
        if getattr(setting.type, "max", None) is not None:
            text = "90"
        if setting.name in {"max_header_bytes", "max_late_ms"}:
            text = "100000"
        if setting.name == "max_reading_bytes":
            text = "100000000"
        if isinstance(setting.type, click.Choice):
            text = next(choice for choice in setting.type.choices if choice != setting.default)
        by_name = settings_from({setting.name: text, **more}, {})
        by_variable = settings_from(dict(more), {setting.variable: text})
        assert by_name == by_variable
        assert getattr(by_name, setting.name) != setting.default, setting.name
        if setting.default is not None:
            assert isinstance(getattr(by_name, setting.name), type(setting.default))


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("TRUE", True), ("on", True), ("0", False), ("No", False), ("false", False)],
)
def test_what_is_on_or_off_can_be_said_in_many_words(text: str, *, value: bool) -> None:
    assert settings_from({"access_log": text}, {}).access_log is value


@pytest.mark.parametrize("text", ["interval", " Interval ", "INTERVAL"])
def test_a_choice_is_a_word_in_any_case(text: str) -> None:
    assert settings_from({"journal_sync": text}, {}).runtime_settings().journal_sync == "interval"


def test_what_is_set_of_the_journal_reaches_the_runtime() -> None:
    given = {"journal_sync": "off", "snapshot_journal_bytes": "1", "max_answers_kept_bytes": "2"}
    chosen = settings_from(given, {}).runtime_settings()
    assert (chosen.journal_sync, chosen.snapshot_journal_bytes, chosen.answers_kept_bytes_max) == (
        "off",
        1,
        2,
    )


def test_an_empty_variable_is_not_set() -> None:
    assert settings_from({}, {"RULE_DETECTOR_BOOTSTRAP_TOKEN": "", "RULE_DETECTOR_PORT": ""}) == Settings()


@pytest.mark.parametrize(
    ("given", "defect"),
    [
        ({"port": "x"}, "port: expected a whole number from 0 to 65535, got `x`"),
        ({"port": "65536"}, "port: expected a whole number from 0 to 65535, got `65536`"),
        ({"port": "-1"}, "port: expected a whole number from 0 to 65535, got `-1`"),
        ({"deadline_s": "nan"}, "deadline_s: expected a number of at least 0.1, got `nan`"),
        ({"deadline_s": "inf"}, "deadline_s: expected a number of at least 0.1, got `inf`"),
        ({"access_log": "maybe"}, "access_log: expected true or false, got `maybe`"),
        ({"snapshot_journal_bytes": "0"}, "snapshot_journal_bytes: expected a whole number of at least 1"),
        ({"max_answers_kept_bytes": "0"}, "max_answers_kept_bytes: expected a whole number of at least 1"),
        (
            {"journal_sync": "sometimes"},
            "journal_sync: expected `always`, `interval` or `off`, got `sometimes`",
        ),
        ({"journal_sync": " "}, "journal_sync: expected `always`, `interval` or `off`, got ` `"),
        ({"journal_sync": 1}, "journal_sync: expected `always`, `interval` or `off`, got `1`"),
        ({"max_rules": "0"}, "max_rules: expected a whole number of at least 1, got `0`"),
        ({"host": ""}, "host: expected an address, got an empty string"),
        ({"no_such": "1"}, "no_such: no such setting"),
        (
            {"bootstrap_token": f"two words {STRONG}"},
            "bootstrap_token: expected at least 32 visible ASCII characters without blanks",
        ),
        ({"bootstrap_token": STRONG[1:]}, "bootstrap_token: expected at least 32 visible ASCII characters"),
        ({"bootstrap_token_file": "/no/such"}, "bootstrap_token_file: /no/such: no such file or directory"),
        (
            {"bootstrap_token_file": "/no/such", "bootstrap_token": STRONG},
            "bootstrap_token_file: bootstrap_token is set too; only one of them can be",
        ),
        ({"max_late_ms": "1"}, "max_ahead_ms: 60000 is above max_late_ms (1)"),
        ({"max_ahead_ms": "300001"}, "max_ahead_ms: 300001 is above max_late_ms (300000)"),
        ({"max_batch_body_bytes": "9"}, "max_body_bytes: 1048576 is above max_batch_body_bytes (9)"),
        (
            {"max_reading_bytes": str(8 * MIB)},
            "max_reading_bytes: 8388608, for 1 front ends, is below twice max_batch_body_bytes",
        ),
        ({"max_memory_mb": "255"}, "max_memory_mb: 255 MiB is below four times max_answer_bytes (67108864)"),
        (
            {"max_memory_mb": "63", "max_answer_bytes": "9"},
            "max_memory_mb: 63 MiB is below four times max_batch_body_bytes (16777216)",
        ),
        ({"front_ends": 9}, "max_reading_bytes: 268435456, for 9 front ends, is below twice"),
    ],
)
def test_a_defect_is_told_by_the_name_of_its_setting(given: dict[str, object], defect: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from(given, {})
    assert len(caught.value.defects) == 1
    assert caught.value.defects[0].startswith(defect)


@pytest.mark.parametrize("front_ends", [1, 2, 8])
def test_front_ends_share_the_memory_for_bodies_and_read_ahead_in_an_eighth_of_it(front_ends: int) -> None:
    # Eight are as many as can each hold a batch of the largest size, twice.
    chosen = Settings(front_ends=front_ends, max_reading_bytes=256 * MIB, max_batch_body_bytes=16 * MIB)
    assert chosen.ahead_bytes_max * front_ends == 32 * MIB
    assert chosen.bodies_bytes_max * front_ends == 224 * MIB


def test_memory_for_four_of_the_largest_batches_or_answers_is_enough() -> None:
    assert Settings(max_memory_mb=256, max_answer_bytes=64 * MIB).max_memory_mb == 256
    assert Settings(max_memory_mb=64, max_answer_bytes=9, max_batch_body_bytes=16 * MIB).max_memory_mb == 64


def test_all_defects_are_told_together() -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from({"port": "x", "max_rules": "0", "nope": 1}, {"RULE_DETECTOR_DEADLINE_S": "-1"})
    assert [defect.split(":")[0] for defect in caught.value.defects] == [
        "nope", "port", "deadline_s", "max_rules",
    ]  # fmt: skip


def test_a_number_that_is_refused_is_compared_with_no_other() -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(max_late_ms=-1)
    assert [defect.split(":")[0] for defect in caught.value.defects] == ["max_late_ms"]


def test_services_share_what_holds_for_detectors_and_not_what_holds_for_callers_and_folders() -> None:
    shared = Settings(max_rules=7, port=7).shared_settings()
    assert shared["--max-rules"] == "7"
    assert shared.keys() >= {"--journal-sync", "--max-state-bytes", "--node-timeout-s"}
    assert shared.keys().isdisjoint(
        {"--port", "--data", "--ray-address", "--bootstrap-token", "--deadline-s"}
    )


def test_a_secret_is_not_repeated_in_its_defect() -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from({"bootstrap_token": "se cret"}, {})
    assert "cret" not in str(caught.value)


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(STRONG + "\n")
    chosen = settings_from({"bootstrap_token_file": str(file)}, {})
    assert chosen.bootstrap_token == STRONG
    assert decode_settings(encode_settings(chosen)) == chosen
    file.write_text(STRONG[1:])
    with pytest.raises(SettingsError, match="at least 32"):
        settings_from({}, {"RULE_DETECTOR_BOOTSTRAP_TOKEN_FILE": str(file)})


def test_variables_that_are_no_settings_are_found() -> None:
    environment = {
        "RULE_DETECTOR_": "80",
        "RULE_DETECTOR_PROT": "80",
        "RULE_DETECTOR_PORT": "80",
        "RULE_DETECTOR_TEST_DATA": "x",
        "RULE_DETECTOR_CA_FILE": "x",
        "OTHER": "y",
    }
    meant = "; did you mean `RULE_DETECTOR_PORT`?"
    assert unknown_variables(environment) == {"RULE_DETECTOR_": "", "RULE_DETECTOR_PROT": meant}


def test_a_wrong_variable_is_named() -> None:
    environment = {"RULE_DETECTOR_MAX_RULES": "many", "RULE_DETECTOR_PORT": "x"}
    with pytest.raises(SettingsError) as caught:
        settings_from({"port": "y"}, environment)
    port, rules = sorted(caught.value.defects, reverse=True)
    assert rules.endswith("got `many` (from RULE_DETECTOR_MAX_RULES)")
    assert port.endswith("got `y`")


def test_people_are_shown_options_variables_and_defaults() -> None:
    shown = {setting.name: setting for setting in settings()}
    assert shown["max_resident"].option == "--max-resident"
    assert shown["max_resident"].variable == "RULE_DETECTOR_MAX_RESIDENT"
    assert shown["max_resident"].shown_default == "50"
    assert shown["access_log"].shown_default == "false"
    assert shown["bootstrap_token"].shown_default == ""
    assert shown["passivate_after_s"].shown_default == "600"
    assert all(setting.text.endswith(".") for setting in settings())


def test_a_front_end_is_given_the_settings_in_force() -> None:
    chosen = Settings(
        data=Path("somewhere/else"), bootstrap_token=STRONG, journal_sync="off", deadline_s=0.25, front_ends=3
    )
    assert decode_settings(encode_settings(chosen)) == chosen
    assert decode_settings(encode_settings(Settings())) == Settings()
