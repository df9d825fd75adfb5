"""Texts that would be right in another language are refused with what to write, which can be read."""

import re

import pytest

from engine.language.diagnostics import ConditionError
from engine.language.text.parser import parse

COUNTED = "count(a == 1) within 10m >= 5"
BEFORE = "x != prev(x)"

INSTEAD = {
    'user startsWith "a"': 'user startswith "a"',
    "user starts_with 'a.b'": 'user startswith "a.b"',
    'not user BeginsWith "a"': 'user startswith "a"',
    'user ends_with "."': 'user endswith "."',
    'user ICONTAINS "a"': 'user icontains "a"',
    'user LIKE "a*.b?"': 'user like "a*.b?"',
    'user ILIKE "%a"': 'user ilike "*a"',
    'user regex "a|b"': 'user matches "a|b"',
    "user begins_with name": 'user startswith "…"',
    'user not startswith "a"': 'not user startswith "a"',
    'user not like "%a"': 'not user like "*a"',
    'user not contains "a"': 'not user contains "a"',
    "$user not matches 'a'": 'not $user matches "a"',
    '`a b` starts_with "a"': '`a b` startswith "a"',
    'ip in subnet "10.0.0.0/12"': 'ip in network "10.0.0.0/12"',
    'ip not in cidr "10.2.0.0/16"': 'not ip in network "10.2.0.0/16"',
    'lower(x) == "a"': 'x iequals "a"',
    "toupper(x) == 'a'": 'x iequals "a"',
    "x[0] == 1": "some x (it == 1)",
    "user is null": "missing user",
    "user is None and a == 1": "missing user",
    "user is not null": "exists user",
    "user is missing": "missing user",
    "user is not missing": "exists user",
    "user is set": "exists user",
    "user is not present": "missing user",
    "user not null": "exists user",
    "user isnull": "missing user",
    "user exists": "exists user",
    "user exists and b == 1": "exists user",
    "count(*)": "count(x == x) within 10m >= 5",
    "count() > 5": "count(x == x) within 10m >= 5",
    "per ip per user (count(*) > 5)": "count(user == user) within 10m >= 5",
    "count(distinct user) > 5": "distinct(user) within 10m >= 5",
    "count(a == 1)": COUNTED,
    "count(a == 1) and b == 1": COUNTED,
    "per user, ip (a == 1)": "per user per ip (a == 1)",
    "per user, ip, host once a == 1": "per user per ip per host (a == 1)",
    "per user and ip (a == 1)": "per user per ip (a == 1)",
    "per (user, ip) (a == 1)": "per user per ip (a == 1)",
    "per [user, ip] a == 1": "per user per ip (a == 1)",
    "per (user) (a == 1)": "per user (a == 1)",
    "group by user (a == 1)": f"per user ({COUNTED})",
    "by user (a == 1)": f"per user ({COUNTED})",
    "a == 1 per user": f"per user ({COUNTED})",
    "count(a == 1) by user > 5": f"per user ({COUNTED})",
    "ok": "ok == true",
    "not ok": "ok == true",
    "ok and a == 1": "ok == true",
    "a == 1 or $user.ok": "$user.ok == true",
    "per user (ok)": "ok == true",
    "any(ok, a == 1)": "ok == true",
    "true": "x == true",
    "x in (1, 2)": "x in [1, 2]",
    "x not in (1, 2)": "x in [1, 2]",
    "x in {1, 2}": "x in [1, 2]",
    "x between (1, 2)": "x between 1 and 5",
    "x between [1, 2]": "x between 1 and 5",
    "x between 1, 2": "x between 1 and 5",
    '"a" in tags': 'tags contains "a"',
    "x matches /a/": "x matches '^a'",
    'contains(x, "a")': 'x contains "a"',
    'matches(x.y, "^a")': 'x.y matches "^a"',
    'startswith(x, "a") == true': 'x startswith "a"',
    "x != previous x": BEFORE,
    'user.startswith("a")': 'user startswith "a"',
    'a.b.contains("c")': 'a.b contains "c"',
    'x == "a" or "b"': 'x in ["a", "b"]',
    "(x == 1 or 2) and a == 1": "x in [1, 2]",
    "1 < x <= 5": "1 < x and x <= 5",
    "once(a == 1, 5m)": "once within 5m a == 1",
    "count(a == 1, 5m) > 5": COUNTED,
    "x == “a”": 'x == "a"',
    "a == 1 within 5m": "once within 5m a == 1",
    "(a == 1) within 5m": "once within 5m a == 1",
    "once a == 1 within b": "once within 10m a == 1",
    "a == 1 for 5m": "historically for 5m a == 1",
    "within 5m a == 1": "once within 5m a == 1",
    "a == 1 then b == 2": "b == 2 and earlier within 10m a == 1",
    "a == 1 followed by b == 2": "b == 2 and earlier within 10m a == 1",
}

SAID = {
    "x is in [1]": 'did you mean "in"?',
    "x is not 1": 'did you mean "!="?',
    "x is 1": 'did you mean "=="?',
    'x has "a"': 'did you mean "contains"?',
    'x has "a" and b == c': 'did you mean "contains"?',
    "count(a == 1) over 5m > 5": 'did you mean "within"?',
    "once in 5m a == 1": 'did you mean "within"?',
    "historically within 5m a == 1": 'did you mean "for"?',
    "a == 1, b == 2": 'did you mean "and"?',
    "average(x) > 5": '"avg" give numbers',
    "owns(x) within 5m": '"avg" give numbers',
    "count(ok) > 5": '"count" takes a condition',
}


def told(text: str) -> str:
    with pytest.raises(ConditionError) as refused:
        parse(text)
    [(code, message)] = refused.value.entries
    assert code == 1300
    return message.split("\n")[0]


@pytest.mark.parametrize("text", INSTEAD)
def test_a_text_of_another_language_is_answered_with_what_to_write(text: str) -> None:
    instead = INSTEAD[text]
    assert f"`{instead}`" in told(text).partition("; ")[2]
    parse(instead)


@pytest.mark.parametrize("text", ["user not startswith 'a'", "per user, ip (a == 1)", "count(*) > 5"])
def test_it_may_stand_anywhere_in_a_long_text(text: str) -> None:
    others = " and ".join(["b == 1"] * 30)
    instead = told(text).partition("; ")[2]
    assert told(f"{text} and {others}").endswith(instead)
    assert told(f"{others} and {text}").endswith(instead)


@pytest.mark.parametrize("text", SAID)
def test_a_text_of_another_language_is_answered_with_what_is_meant(text: str) -> None:
    assert SAID[text] in told(text)


@pytest.mark.parametrize(
    "text",
    [
        "any(per user, a == 1)",
        "per user, ip == 1",
        "per (a == 1) b == 2",
        "x hour 5",
        'per k not contains "a"',
        "ip in subnet b",
        "ip not in network b",
        "x == y z",
        "1 in x",
        "foo a == 1",
        "sum(x startswith 'a') > 1",
        "a == 1 ) b",
        "previous",
        "within == 1",
    ],
)
def test_nothing_is_suggested_where_nothing_is_known(text: str) -> None:
    assert not re.search("; |[?]$", told(text).replace("; as a name it needs backquotes", ""))
