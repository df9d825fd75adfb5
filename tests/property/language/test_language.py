"""Every valid condition survives being written and read back, as text and as JSON."""

import json
import re
from typing import Any as Json

from hypothesis import example, given
from hypothesis import strategies as st

from engine.language.condition import All, Any, Compare, Condition, Leaf, Not, walk
from engine.language.diagnostics import ConditionError
from engine.language.json.writer import condition_to_document
from engine.language.limits import Limits
from engine.language.terms import terms_in
from engine.language.text import printer
from engine.language.text.parser import parse
from engine.language.validation.document import condition_from_document, condition_from_json
from tests.worlds.conditions import conditions, small_conditions

ROOMY = Limits(text_bytes_max=10**9)
"""What is valid may have a text longer than may be sent; here only reading back matters."""

TOKEN = re.compile(
    r"""`(?:[^`]|``)*` | "(?:[^"\\]|\\.)*" | '[^']*' | [<>=!]+ | [\[\](),*] | [^\s<>=!\[\](),*]+ | \s+""",
    re.VERBOSE,
)
BLANKS = ("", " ", "\t", "\n", "\r\n", " # a comment, with `marks` \"and\" 'such'\n", "  ")


def depth_of(condition: Condition) -> int:
    return depth_of_document(condition_to_document(condition))


def depth_of_document(document: Json) -> int:
    match document:
        case {"compare": {"left": left, "right": right}}:
            inner = [left, right]
        case {"add": list() as inner} | {"mul": list() as inner} | {"sub": list() as inner}:
            pass
        case {"div": list() as inner}:
            pass
        case {"abs": only} | {"age": only}:
            inner = [only]
        case {"all": list() as members} | {"any": list() as members}:
            inner = members
        case {"not": only} | {"once": only} | {"historically": only} | {"previous": only} | {"earlier": only}:
            inner = [only]
        case document:
            content = next(iter(document.values())) if isinstance(document, dict) else None
            names = ("left", "right", "inner", "reset", "where") if isinstance(content, dict) else ()
            inner = [content[name] for name in names if name in content]
    return 1 + max(map(depth_of_document, inner), default=0)


def nodes_in(condition: Condition) -> int:
    """Return the number of conditions and terms in a condition, itself included."""
    terms = sum(
        sum(1 for each in (node.left, node.right) for _ in terms_in(each))
        for node, _ in walk(condition)
        if isinstance(node, Compare)
    )
    return terms + sum(1 for _ in walk(condition))


def code_of(text: str, limits: Limits) -> int:
    try:
        parse(text, limits)
    except ConditionError as error:
        return error.code
    return 0


@given(conditions)
def test_the_canonical_text_reads_back_as_the_same_condition(condition: Condition) -> None:
    text = printer.format(condition)
    assert parse(text, ROOMY) == condition


@given(conditions)
def test_the_canonical_text_of_what_was_read_is_the_text_itself(condition: Condition) -> None:
    text = printer.format(parse(printer.format(condition), ROOMY))
    assert printer.format(parse(text, ROOMY)) == text


@given(conditions)
@example(All((Leaf("a", "eq", "a ` in a value"), Leaf("two\nlines", "eq", 1))))
def test_a_canonical_text_has_one_line_but_for_what_names_hold(condition: Condition) -> None:
    text = printer.format(condition)
    tokens = TOKEN.findall(text)
    assert "".join(tokens) == text
    assert [token for token in tokens if re.search(r"[\n\r]", token) and not token.startswith("`")] == []


@given(conditions)
def test_a_document_comes_back_exactly_as_it_was_given(condition: Condition) -> None:
    given_as = json.dumps(condition_to_document(condition))
    for read in (
        condition_from_document(json.loads(given_as)),
        condition_from_json(given_as, ROOMY),
        condition_from_json(given_as.encode(), ROOMY),
        parse(f" \n{given_as}\t", ROOMY),
        parse(json.loads(given_as)),
    ):
        assert read == condition
        assert json.dumps(condition_to_document(read)) == given_as


@given(conditions, st.data())
def test_blanks_comments_and_line_ends_change_nothing(condition: Condition, data: st.DataObject) -> None:
    tokens = [token for token in TOKEN.findall(printer.format(condition)) if not token.isspace()]
    written = ""
    for token in tokens:
        blanks = data.draw(st.sampled_from(BLANKS))
        words_meet = re.search(r"[\w@.$`'\"-]\Z", written) and re.match(r"[\w@.$`'\"-]", token)
        written += ((blanks or " ") if words_meet else blanks) + token
    assert parse(written, ROOMY) == condition


@given(conditions)
def test_needless_parentheses_change_nothing(condition: Condition) -> None:
    assert parse(f"(({printer.format(condition)}))", ROOMY) == condition


@given(small_conditions, small_conditions)
@example(Leaf("a", "eq", 1), Leaf("a", "eq", True))
@example(Leaf("a", "eq", "5"), Leaf("a", "eq", 5))
def test_different_conditions_have_different_texts(one: Condition, other: Condition) -> None:
    assert (one == other) or (printer.format(one) != printer.format(other))


@given(small_conditions)
def test_grouping_is_kept(condition: Condition) -> None:
    for nested in (All((All((condition,)), condition)), Any((Any((condition, condition)), Not(condition)))):
        assert parse(printer.format(nested), ROOMY) == nested


@given(small_conditions)
def test_depth_and_nodes_are_allowed_up_to_their_bounds_and_no_further(condition: Condition) -> None:
    depth = depth_of(condition)
    document = condition_to_document(condition)
    nodes = nodes_in(condition)
    for source in (printer.format(condition), json.dumps(document), document):
        assert code_of(source, Limits(depth_max=depth, nodes_max=nodes)) == 0
        assert code_of(source, Limits(depth_max=depth - 1)) == 1303
        assert code_of(source, Limits(nodes_max=nodes - 1)) == 1303


@given(
    small_conditions,
    st.sampled_from((" )", " %", " and", ' "', " 5", " #\n(", " AND", " since within 1e999s")),
)
def test_a_text_that_is_too_deep_is_refused_as_such_whatever_follows(condition: Condition, rest: str) -> None:
    depth = depth_of(condition)
    # What follows may require a condition around the present one.
    assert code_of(printer.format(condition) + rest, Limits(depth_max=depth + 1)) == 1300
    assert code_of(printer.format(condition) + rest, Limits(depth_max=depth - 1)) == 1303


@given(small_conditions, st.data())
def test_no_beginning_of_a_text_is_deeper_than_the_whole(condition: Condition, data: st.DataObject) -> None:
    tokens = TOKEN.findall(printer.format(condition))
    cut = data.draw(st.integers(0, len(tokens)))
    limits = Limits(depth_max=depth_of(condition))
    assert code_of("".join(tokens[:cut]) + " %", limits) == 1300


OPENERS = (
    *("not (", "once (", "once within 5m (", "historically (", "historically for 1s strong (", "per k ("),
    *(
        "all(",
        "any(a in b, (",
        "(a == 1 and (",
        "((a in b or b == c or (",
        "not in(x, y) and (",
        "a > 1 since (",
    ),
    *("previous (", "earlier (", "earlier within 5m (", "count(", "sum(x where ", "avg(`a b` where not "),
    *("per k where ((", "per previous where a == 1 (", "per k where (a == 1) ("),
    *("a == 1 since within 5m (", "not not once within 5m not historically for 1m weak per not_ all("),
)


@given(
    st.lists(st.sampled_from(OPENERS), min_size=64, max_size=64), st.sampled_from(("", "%", ")", "a ==", "a"))
)
def test_sixty_four_open_conditions_are_too_deep_before_the_innermost_is_read(
    openers: list[str], rest: str
) -> None:
    assert code_of("".join(openers).replace("in(", "r(") + rest, Limits()) == 1303
    assert code_of("".join(openers[:12]).replace("in(", "r(") + rest, Limits()) == 1300
