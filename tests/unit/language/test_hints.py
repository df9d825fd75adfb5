"""Hints about valid conditions that probably do not say what was meant."""

import sys
from collections.abc import Callable

import pytest

from engine.language.condition import Condition
from engine.language.hints.hints import HINTS_MAX, hints
from engine.language.limits import Limits
from engine.language.text.parser import parse


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("exists(x)", "`exists x`"),
        ("exsits(x)", "`exists x`"),
        ("has(user.id)", "`exists user.id`"),
        ("missing(x)", "`missing x`"),
        ('cidr(ip, "10.0.0.0/8")', '`ip in network "10.0.0.0/8"`'),
        ('cidr(ip, "192.168.7.0/24")', '`ip in network "192.168.7.0/24"`'),
        ('cidr(ip, "192.168.7.1/32")', '`ip in network "192.168.7.1/32"`'),
        ('in_subnet(ip, "2001:db8::/32")', '`ip in network "2001:db8::/32"`'),
        ('cidr(ip, "a")', '`ip in network "10.0.0.0/8"`'),
        ('rule("other")', "repeat its condition here"),
        ('startswith(user, "a.b")', '`user startswith "a.b"`'),
        ('endsWith(user, "b")', '`user endswith "b"`'),
        ('includes(user, "b")', '`user contains "b"`'),
        ('like(user, "b*")', '`user like "b*"`'),
        ('regex(user, "b")', '`user matches "b"`, with a regular expression'),
        ("prev(x)", "as in `x != prev(x)`"),
        ("hour()", "as in `hour() > 5`"),
        ("len(x)", "as in `length(x) > 5`"),
        ("trim(x)", "send the computed value as a field"),
        ("x > x", "`x > x` is never true: both sides are the same"),
        ("prev(x) == prev(x)", "only asks whether there is a value"),
        ("hour() >= 24", "`hour() >= 24` is never true: `hour()` is a number from 0 to 23"),
        ("weekday() in [0, 6]", "`weekday()` is a number from 1 to 7"),
        ('"monday" == weekday("Europe/Berlin")', "is a number from 1 to 7"),
        ("clock() > 9", '`clock()` is a text from "00:00" to "23:59"'),
        ("per user (x > 3 * earlier avg(x))", "as in `avg(…) within 30d`"),
        ("mean(x)", "`avg(x)`"),
        ("per user (previous country != country)", "is never true"),
        ("previous x != x", "written `x != prev(x)`"),
        ("earlier within 5m x != x", "`distinct(x) within 1h >= 2`"),
        ('lower(x, "a")', '`x iequals "a"`'),
        ('x like "%a%"', '`x like "*a*"`'),
        ('anywhere (it == $v and text icontains "a" or y == 1)', "`text` has no value inside `anywhere`"),
        ('y ilike "a_%"', '`y ilike "a_*"`'),
        ("x != x", "is never true"),
        ("x in []", "is never true"),
        ('x == "a" and x == "b"', '`x == "b"` is never true together with `x == "a"`'),
        ('x == "a" and (y == 1 and x == "b")', "alternatives are joined by `or`"),
        ("x > 5 and x < 3", "`x < 3` is never true together with `x > 5`"),
        ("x >= 3 and x <= 3 and x != 3", "and the other conditions on it"),
        ('x > 3 and x == "5"', "is never true"),
        ('x between 1 and 2 and x between "a" and "b"', "is never true"),
        ('x != "a" or (y == 1 or x != "b")', "is true at every event that has `x`"),
        ("count(x == 1) >= 0", "is always true: a count is never less than 0"),
        ("distinct(x) < 0", "is never true: a count is never less than 0"),
        ("per user (once ok == false)", "as in `once within 30d …`"),
        ("per user (count(x == 1) > 3)", "as in `count(…) within 30d`"),
        ("per user (a == 1 since b == 1)", "as in `… since within 30d …`"),
        ("per user (earlier a == 1)", "as in `earlier within 30d …`"),
        ("per user (count(a == 1) since b == 1 >= 3)", "as in `count(…) within 30d`"),
        ("count(a == 1) since b == 1 >= 0", "is always true: a count is never less than 0"),
        ("count(a == 1) since a == 1 >= 1", "counts nothing: each event that it would count"),
        ("per user (historically a == 1)", "as in `historically for 30d …`"),
        ("per user (per ip (sum(x) > 5))", "`per user` remembers"),
        ("per user (age(a == 1) > 300)", "as in `once within [5m, 30d] …`"),
        ("per user (distinct(x) > 3)", "`--max-keys`"),
        # What excludes each other.
        ("x > 5 and not x > 5", "one is the negation of the other"),
        ("x == 1 and (y == 2 and not (x == 1))", "never true"),
        ("missing x and x == 1", "only at events that have the fact"),
        ("x in [1, 2] and y == 1 and missing x", "only at events that have the fact"),
        ("x == 1 and not exists x", "only at events that have the fact"),
        ("x in [1, 2] and x in [3]", "alternatives are joined by `or`"),
        (
            'ip in network "10.0.0.0/8" and ip in network "192.168.0.0/16"',
            "lies in networks of both",
        ),
        ("hour() >= 22 and hour() < 6", "`hour()` has one value"),
        ("count(a == 1) within 5m >= 5 and count(a == 1) within 5m < 3", "`count(a == 1) within 5m` has one"),
        ("a > b and b > a", "compare in one way at an event"),
        ("a == b and a != b", "never true together"),
        ("prev(x) > 5 and prev(x) < 3", "`prev(x)` has one value"),
        ("per user (once within 5m (x > 5 and x < 3))", "; so the whole condition is never true"),
        ("y == 1 or not y == 1", "is always true: one is the negation of the other"),
        ("exists y or missing y", "is always true"),
        ("count(a == 1) within 10s < 0", "is never true: a count is never less than 0"),
        ("compare(1 > 2)", "it compares two constants"),
        ("length(x) < 0", "never less than 0"),
        (
            "0 <= length(x)",
            "is true wherever there is a value: `length(x)` is a number and never less than 0",
        ),
        ('length(x) == "a"', "is never true"),
        ("x > true", "booleans have no order"),
        ("count(x in []) within 5m >= 1", "; so the whole condition is never true"),
        ("not x in []", "; so the whole condition is always true"),
        ("some list (it > 5 and it < 3)", "; so the whole condition is never true"),
        # What adds nothing.
        ("x == 1 or x in [1, 2]", "`x == 1` adds nothing to `x in [1, 2]`"),
        ("x > 5 or y == 1 or x > 3", "`x > 5` adds nothing to `x > 3`"),
        ("a == 1 or (a == 1 and b == 2)", "adds nothing to `a == 1`"),
        ("a == 1 or b == 2 or a == 1.0", "stands twice"),
        ("x == 1 or exists x", "adds nothing to `exists x`"),
        ("count(a == 1) within 5m > 5 or count(a == 1) within 5m > 3", "adds nothing to"),
        # The value before.
        (
            "previous x == y",
            "is written `prev(x) == y`; if both are of the event before, write `prev(x) == prev(y)`",
        ),
        ("previous x > y", "is written `prev(x) > y`"),
    ],
)
def test_what_is_probably_not_meant_is_told_once_with_what_to_write(text: str, instead: str) -> None:
    [hint] = hints(parse(text))
    assert instead in hint


@pytest.mark.parametrize(
    "text",
    [
        "x == x and not y == y",
        "owns(user, account) and rooms(x) and counts(x) and own(x)",
        "previous exists x and earlier within 5m exists x and missing x",
        'x like "a%b" and x startswith "%"',
        "previous prev(x) == y and previous x == 1 and once x == x",
        "per user (once within 10m ok == false and a == 1 and not previous a == 1)",
        "once ok == false and count(x == 1) > 3",
        "x > 3 and x < 5 and x != 4 and x in [3.5, 4.5]",
        "a == 1 and a == 1.0 and b == true or a == 2",
        'x != "a" and x != "b" or x == "a" or y != 1',
        "x == [1] and x contains 1",
        'hour() >= 22 and clock() < "06:00" and hour() < day() and x > y and prev(x) != x',
        "per user (x > 3 * earlier avg(x) within 30d and x != prev(x) and x > last(x))",
        "count(x == 1) >= 1 and distinct(x) > 0",
        "x != 1 and not x == 2 and exists x and not exists y",
        "not x == 1 and missing x or x == 1 and once missing x",
        'ip in network "10.0.0.0/8" and ip in network ["10.1.0.0/16", "::1"] and not y in network "::1"',
        "x == 7 or x in [5, 6] or x > 7 or x < 5 or y == 1",
        "x > 5 and y == 1 or x > 3 and y == 2",
        "count(a == 1) within 5m > 5 and count(a == 1) within 10m < 6 and count(b == 1) within 5m < 3",
        "a >= b and a <= b and b >= a and hour() >= 6 and hour() < 22 or hour() == 23",
        "previous (x == y and a == 1) and previous prev(x) == prev(y)",
        'anywhere (it == $v or it contains "x")',
        "length(x) > 0 and abs(x - y) >= 5 and count(a == 1) within 5m > 0",
    ],
)
def test_what_is_meant_is_not_questioned(text: str) -> None:
    assert hints(parse(text)) == []


def test_there_are_only_so_many_hints() -> None:
    many = " and ".join(f"x{number} != x{number}" for number in range(50))
    assert len(hints(parse(many))) == HINTS_MAX
    assert len(hints(parse("x != x and x != x"))) == 1


def test_long_lists_and_many_predicates_are_not_compared() -> None:
    long = ", ".join(map(str, range(101)))
    assert hints(parse(f"x == 1000 and x in [{long}]")) == []
    assert hints(parse(" and ".join(["x > 1"] * 40) + " and x < 0")) == []


CALLS_A_NODE_MAX = 300


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("user in admins", "`admins(user)`"),
        ("a == 1 and once not (user.id not in admins)", "`not admins(user.id)`"),
        ("user in `all users`", "``all users`(user)`"),
        ("user in $admins", None),
        ("user == admins", None),
        ("user in others", None),
        ("admins(user)", None),
    ],
)
def test_a_list_that_is_named_like_a_relation_is_doubtful(text: str, instead: str | None) -> None:
    found = hints(parse(text), relations=["admins", "all users"])
    told = [said.partition("; to look in the relation, write ")[2] for said in found]
    assert told == ([] if instead is None else [instead])
    assert hints(parse(text)) == []


def calls(condition: Condition) -> int:
    """Return how many functions are called to find the hints about a condition."""
    count = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        hints(condition)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
@pytest.mark.parametrize(
    "text_of_size",
    [
        lambda size: " or ".join(f"x between {number} and {number + 2}" for number in range(size)),
        lambda size: " and ".join(f"x > {-number}" for number in range(size // 3)),
        lambda size: " or ".join(f"x == {number}" for number in range(size)),
        lambda size: " and ".join(f"x{number} == 1" for number in range(size)),
        lambda size: " and ".join(f"x{number // 30} in [1, 2, {number}]" for number in range(size)),
        lambda size: " and ".join(f'x{number // 40} in network "10.0.0.0/8"' for number in range(size)),
        lambda size: " or ".join(f"(x == {number} and y{number} == 1)" for number in range(size // 3)),
        lambda size: " and ".join(f"per k{number} (once x in [])" for number in range(size // 3)),
        lambda size: (
            "".join(f"a{level} == 1 and (once (" for level in range(30))
            + " or ".join(f"not y == {number}" for number in range(size // 2))
            + "))" * 30
        ),
    ],
)
def test_the_work_grows_with_the_size_of_a_condition(text_of_size: Callable[[int], str]) -> None:
    limits = Limits(nodes_max=10**5)
    small, large = (calls(parse(text_of_size(size), limits)) for size in (200, 800))
    assert large <= min(5 * small, 800 * CALLS_A_NODE_MAX)
