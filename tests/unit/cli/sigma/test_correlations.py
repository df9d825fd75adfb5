"""Correlation rules become conditions that count and look back, separately for each group."""

from pathlib import Path

import pytest
import yaml

from api.cli.sigma.conversion import Conversion, Converter
from engine import Detector
from engine.language.text.printer import format as canonical

BASES = [
    {
        "title": name,
        "name": name,
        "logsource": {"product": "any"},
        "detection": {"selection": {"kind": name}, "condition": "selection"},
    }
    for name in ("failed", "worked", "deleted")
]


def convert(folder: Path, *correlations: dict) -> Conversion:
    named = {name for each in correlations for name in each["rules"]}
    documents = [
        *(
            {"title": f"correlation {place}", "name": f"c{place}", "correlation": each}
            for place, each in enumerate(correlations)
        ),
        *(base for base in BASES if base["name"] in named),
    ]
    (folder / "rules.yml").write_text(yaml.safe_dump_all(documents), "utf-8")
    return Converter().convert([str(folder)])


def of(kind: str, rules: str = "failed", **members: object) -> dict:
    return {"type": kind, "rules": rules.split(), "timespan": "1m", **members}


def fired(conversion: Conversion, history: str) -> list[int]:
    """The events, which come ten seconds apart, at which the only rule fires: `kind user value`."""
    [each] = conversion.converted
    detector = Detector()
    detector.add_rule("rule", each.condition)
    found = []
    for place, event in enumerate(history.split(",")):
        kind, user, value = event.split()
        fields = {"kind": kind, "user": user, "value": int(value)}
        if detector.evaluate(fields, 1_000_000 + 10_000 * place):
            found.append(place)
    return found


@pytest.mark.parametrize(
    ("correlation", "history", "expected"),
    [
        (of("event_count", condition={"gte": 2}), "failed a 1,worked a 1,failed b 1,worked a 1", [2]),
        (
            of("event_count", condition={"gte": 2}, **{"group-by": "user"}),
            "failed a 1,failed b 1,failed a 1,worked a 1,failed b 1",
            [2, 4],
        ),
        (of("event_count", "failed deleted", condition={"gt": 1}), "failed a 1,worked a 1,deleted b 1", [2]),
        (of("event_count", condition={"eq": 1}), "failed a 1,failed a 1", [0]),
        (
            of("event_count", condition={"gte": 2}, timespan="10s"),
            "failed a 1,worked a 1,failed a 1,failed a 1",
            [3],
        ),
        (
            of("value_count", condition={"gte": 2, "field": "value"}, **{"group-by": ["user"]}),
            "failed a 1,failed a 1,failed b 2,failed a 2",
            [3],
        ),
        (of("value_sum", condition={"gt": 5, "field": "value"}), "failed a 3,worked a 9,failed b 3", [2]),
        (of("value_avg", condition={"gte": 4, "field": ["value"]}), "failed a 2,failed a 6,failed b 1", [1]),
        (
            of("temporal", "failed worked", **{"group-by": ["user", "value"]}),
            "worked a 1,failed b 1,failed a 2,failed a 1,deleted a 1",
            [3],
        ),
        (
            of("temporal", "failed worked deleted", condition="failed and (worked or not deleted)"),
            "failed a 1,deleted a 1,worked a 1",
            [0, 2],
        ),
        (of("temporal_ordered", "failed worked"), "worked a 1,failed b 1,worked a 1,failed a 1", [2]),
        (
            of("temporal_ordered", "failed worked deleted", **{"group-by": "user"}),
            "deleted a 1,failed a 1,worked b 1,worked a 1,deleted b 1,deleted a 1",
            [5],
        ),
        (
            of(
                "temporal_ordered",
                "failed worked",
                aliases={"who": {"failed": "user", "worked": "user"}},
                **{"group-by": "who"},
            ),
            "failed a 1,worked b 1,worked a 1",
            [2],
        ),
    ],
)
def test_correlations(tmp_path: Path, correlation: dict, history: str, expected: list[int]) -> None:
    conversion = convert(tmp_path, correlation)
    assert (conversion.left_out, conversion.inside_others) == ([], len(correlation["rules"]))
    assert fired(conversion, history) == expected


def test_a_correlation_is_one_condition_for_each_group(tmp_path: Path) -> None:
    [each] = convert(tmp_path, of("event_count", condition={"gte": 5}, **{"group-by": ["user"]})).converted
    assert canonical(each.condition) == (
        'per user (kind iequals "failed" and count(kind iequals "failed") within 1m >= 5)'
    )


def test_a_correlation_may_refer_to_another_one_with_its_groups(tmp_path: Path) -> None:
    many = of("event_count", condition={"gte": 2}, **{"group-by": ["user"]})
    conversion = convert(tmp_path, many, of("temporal_ordered", "c0 worked", **{"group-by": "user"}))
    assert conversion.inside_others == 3
    assert fired(conversion, "failed a 1,failed a 1,worked b 1,worked a 1") == [3]


def test_rules_that_are_generated_too_stand_beside_their_correlation(tmp_path: Path) -> None:
    conversion = convert(tmp_path, of("event_count", condition={"gte": 2}, generate=True))
    assert [each.rule.title for each in conversion.converted] == ["correlation 0", "failed"]


@pytest.mark.parametrize(
    ("correlation", "reason"),
    [
        (of("event_count", condition={"gte": 20_000}), "whole numbers up to 10000, not with 20000"),
        (of("event_count", condition={"gte": 2.5}), "whole numbers up to 10000, not with 2.5"),
        (of("value_count", condition={"gte": 2, "field": ["a", "b"]}), "the values of one field"),
        (of("value_percentile", condition={"gte": 2, "field": "a", "percentile": 9}), "`value_percentile`"),
        (of("value_median", condition={"gte": 2, "field": "a"}), "`value_median`"),
        (of("temporal", "failed worked", condition={"gte": 1}), "all its rules"),
        (of("temporal_ordered", "failed worked", condition="failed and worked"), "nothing about their order"),
        (of("event_count", "nothing", condition={"gte": 2}), "'nothing' not found"),
        (of("unknown", condition={"gte": 2}), "'unknown' is no valid Sigma correlation type"),
        (of("event_count", condition={"gte": 2}, timespan="1x"), "'1x' is invalid"),
        (
            of(
                "temporal",
                "failed worked",
                aliases={"who": {"failed": "user", "worked": "account"}},
                **{"group-by": ["who"]},
            ),
            "the alias `who` stands for several fields",
        ),
        (
            of(
                "value_count",
                "failed worked",
                aliases={"who": {"failed": "user", "worked": "account"}},
                condition={"gte": 2, "field": "who"},
            ),
            "the alias `who` stands for several fields",
        ),
        (of("value_count", condition={"gte": 2, "field": "$a"}), "`$` are variables"),
        (of("event_count", condition={"gte": 2}, **{"group-by": "$a"}), "`$` are variables"),
        (of("event_count", "", condition={"gte": 2}), "it refers to no rules"),
        (of("event_count", condition={"gte": 2, "lt": 5}), "exactly one condition item"),
    ],
)
def test_what_the_language_cannot_say_is_left_out(tmp_path: Path, correlation: dict, reason: str) -> None:
    [left_out] = convert(tmp_path, correlation, of("event_count", "deleted", condition={"gte": 2})).left_out
    assert left_out.title == "correlation 0", "the others of the file are converted"
    assert reason in left_out.reason


def test_an_alias_for_one_field_stands_for_it_in_the_condition_too(tmp_path: Path) -> None:
    counted = of("value_count", aliases={"who": {"failed": "user"}}, condition={"gte": 2, "field": "who"})
    assert fired(convert(tmp_path, counted), "failed a 1,failed a 2,failed b 1") == [2]


def test_a_group_inside_another_group_is_left_out(tmp_path: Path) -> None:
    inner = of("event_count", condition={"gte": 2}, **{"group-by": "value"})
    [left_out] = convert(
        tmp_path, inner, of("temporal_ordered", "c0 worked", **{"group-by": "user"})
    ).left_out
    assert "`group-by` has fields that the referenced correlation lacks" in left_out.reason
