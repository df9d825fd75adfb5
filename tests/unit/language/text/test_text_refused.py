"""Texts that cannot be read are 1300, at the right place, with the right word suggested."""

import pytest

from engine.language.diagnostics import ConditionError
from engine.language.text.parser import parse

UNREADABLE = """
a
a ==
== 1
(a == 1
a == 1)
any()
not
once
per
per k
per k.
a since
since a == 1
true
1
[1]
a == b == c
a in
a not 1
a not
a not == 1
a in (1, 2)
a in 1, 2
a in [1 2]
a in [1,]
a in [,1]
a in [b]
a contains b
a contains
a matches b
a between 1
a between 1 and
a between 1, 2
a between b and c
a <= null
a > = 1
1 < a < 2
a >> 1
a >
a == null
a != null
null == a
a in null
a in [null]
r(null)
per null a == 1
a == Null
a == True
a == FALSE
a AND b
a == 1 Or b == 2
Not a == 1
per IN a == 1
ALL(a == 1)
a IN [1]
a Contains 1
a == 1 Since b == 2
r(TRUE)
once Within 5m a == 1
earlier
previous since a == 1
previous within 5m a == 1
earlier within a == 1
earlier within 5m
earlier 5m a == 1
count
count(
count(a == 1)
count(a == 1) >
count(a == 1) within > 5
count(a == 1) within 5m
count(a == 1) > 5 within 5m
count(a == 1) contains 1
count(a == 1, b == 2) > 5
count(a) > 5
count() > 5
count(a where b == 1) > 5
distinct(a) > b
distinct(a == 1) > 5
distinct(a, b) > 5
distinct(a where) > 5
distinct(where a == 1) > 5
distinct("a") > 5
distinct(a where b) > 5
sum(a) > 2 *
sum(a) > * b
sum(a) > 5m
sum(a) within 5m
sum(2 * a) > 5
(sum(a)) > 5
per k where
per k where a == 1
per k where a == 1 and b == 2
per k where a == 1 or b == 2 c == 3
per k where a b == 1
per where a == 1 where b == 2 where c == 3
where a == 1
once where a == 1 b == 2
a == 1 where b == 2
per k where a == 1 where b == 2
Sum(a) > 5
per k WHERE a == 1 b == 2
a == In
once within 5 m
once within 5x a == 1
once within 5mm a == 1
once within m5 a == 1
once within +5m a == 1
once within 05m a == 1
once within .5m a == 1
once within 5.m a == 1
once within 1e999 a == 1
once within "5m" a == 1
historically for a == 1
historically for strong 5m a == 1
historically strong a == 1
once within 5m strong a == 1
a == 1 since for 5m b == 2
once 5m a == 1
a == 1 since b == 2 since c == 3
a == 1 since within 5m b == 2 since within 5m c == 3
a in [5m]
a == 1.
a == 1e
a == 0x1
a == 1_000
a == --1
a == -1e999
a == 5and b == 1
a == "x
a == 'x
`a == 1
a.b. == 1
.a == 1
a.1 == 1
1a == 1
-a == 1
$$a == 1
$1 == 1
a$b == 1
a == 1;
a =~ 'x'
a == 1 // x
a == 1 /* x */
a == 1 -- x
r(a == 1)
r(a,)
r(,)
r(a b)
r a
all a == 1
all(a == 1,)
all[a == 1]
a == {}
a similar 'x'
a == 1 xor b == 2
if a == 1
a ! = 1
a = = 1
a not  not in [1]
""".strip().split("\n")

UNREADABLE_TOO = [
    '"a"',
    "a == 1" + "0" * 4_000,
    # More digits than Python itself reads.
    "a == 1" + "0" * 5_000,
    'a == "\\x"',
    'a == "\\u12"',
    "a == 'x\ny'",
    'a == "x\ny"',
    'a == "x\ty"',
    'a == "\\ud800"',
    'a == "\\udc00\\ud800"',
    'a == "\ud800"',
    "a == '\udfff'",
    "`\ud800` == 1",
    "a\\b == 1",
]


@pytest.mark.parametrize("text", [*UNREADABLE, *UNREADABLE_TOO], ids=ascii)
def test_no_other_text_can_be_read(text: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(text)
    assert [entry.code for entry in refused.value.entries] == [1300]


READ_BUT_REFUSED = {
    'a in [1, "x"]': "leaf.value[1]",
    "a in [true]": "leaf.value[0]",
    "a in [[1]]": "leaf.value[0]",
    "a == [true, false]": "leaf.value[0]",
    "a in 1": "leaf.value",
    'a not in "x"': "leaf.value",
    "a contains []": "leaf.value",
    "a matches 1": "leaf.value",
    "a matches ['x']": "leaf.value",
    "a between true and false": "leaf.value[0]",
    "a between 1 and 'x'": "leaf.value[1]",
    "a between [1] and [2]": "leaf.value[0]",
    "a between 2 and 1": "leaf.value",
    "a >= 1" + "0" * 309: "leaf.value",
    "a > 1" + "0" * 309: "all[0].leaf.value",
    "r([1])": "in_relation.args[0]",
    "`` == 1": "leaf.fact",
    "`$` == 1": "leaf.fact",
    "a == ``": "ref.reference",
    "per `` a == 1": "keyed.key",
    "``(1)": "in_relation.relation",
    "r(``)": "in_relation.args[0].fact",
    "a < [1]": "compare.right",
    "length(a) == []": "compare.right",
    "once within -1 a == 1": "once_within.window_secs",
    "historically for -0.5h a == 1": "historically_for.window_secs",
    "a == 1 since within -1ms b == 2": "since_within.window_secs",
}


@pytest.mark.parametrize("text", READ_BUT_REFUSED)
def test_a_text_that_can_be_read_is_validated_like_its_json(text: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(text)
    (entry,) = refused.value.entries
    assert entry.code == 1301
    assert entry.message.split(": ")[0] == READ_BUT_REFUSED[text]


@pytest.mark.parametrize(
    ("text", "column", "suggestion"),
    [
        ("True == a", 1, '"true"'),
        ("a == FALSE", 6, '"false"'),
        ("a =~ 'x'", 3, '"matches"'),
        ("! a == 1", 1, '"not"'),
        ("a contians 1", 3, '"contains"'),
        ("histroically a == 1", 1, '"historically"'),
        ("a == 1 sicne b == 2", 8, '"since"'),
        ("pre user a == 1", 1, '"per"'),
        ("nay(a == 1, b == 2)", 1, '"any"'),
        ("historically fro 5m a == 1", 14, '"for"'),
        ("a == 1 since wihtin 5m b == 2", 14, '"within"'),
        ("a ni [1]", 3, '"in"'),
        ("a == 1 an b == 2", 8, '"and"'),
        ("a equals 1", 3, '"=="'),
        ("a notin [1]", 3, '"not in"'),
        ("per k onec a == 1", 7, '"once"'),
        ("smu(a) > 5", 1, '"sum"'),
        ("Avg(a) within 5m > 5", 1, '"avg"'),
    ],
)
def test_a_word_that_is_nearly_right_is_the_place_and_the_right_one_is_suggested(
    text: str, column: int, suggestion: str
) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(text)
    sentence, _, caret = refused.value.entries[0].message.split("\n")
    assert sentence.startswith(f"line 1, column {column}: expected ")
    assert f"did you mean {suggestion}" in sentence
    assert caret == " " * (column - 1) + "^"


@pytest.mark.parametrize(
    "text",
    [
        "a 5",
        "foo == 1 bar",
        "once note 5m a == 1",
        "x since y",
        "a == 1 b",
        "a == tru b",
        "once within 5 a b",
    ],
)
def test_nothing_is_suggested_that_would_not_help(text: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(text)
    assert "did you mean" not in refused.value.entries[0].message


@pytest.mark.parametrize(
    "text", ["a == ", "a ==\n\n  \t", "a == 1 and\r\n", "(a == 1 \n", "a == 1 and #!", "a ==#&&"]
)
def test_at_an_early_end_the_place_is_just_past_the_last_character(text: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse(text)
    assert refused.value.entries[0].message.startswith(f"line 1, column {len(text.rstrip()) + 1}: expected ")
