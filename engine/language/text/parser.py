"""Reads conditions from text, in the text language or in JSON.

The grammar of the text language consists of the file and of rules for the words of operators, by shape.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from copy import copy
from functools import partial
from importlib import resources
from typing import Final, NoReturn

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from engine.language.condition import Condition
from engine.language.diagnostics import Source
from engine.language.durations import UNITS_MS
from engine.language.forms.form import INFIXES, PREFIXES, Shape
from engine.language.forms.table import FORMS, derived
from engine.language.forms.terms import AGGREGATE_WORDS
from engine.language.json.spans import SpannedObject
from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.language.literals import explain_string, number_value, string_value
from engine.language.text.errors.suggestions import explain, explain_character
from engine.language.text.lexical import (
    Filtered,
    Part,
    Word,
    contextual_keywords,
    is_keyword,
    keywords,
    terminals_of,
)
from engine.language.text.sugar import SUGAR
from engine.language.text.transformer import document_of, is_amount
from engine.language.validation.document import condition_from_document, condition_from_json
from engine.language.validation.size import check_size, check_text_size, too_deep
from engine.language.validation.validator import validated

# -- the grammar --------------------------------------------------------------------------------------------

_RULES: Final = {
    Shape.PREFIX: ("prefixed", "{word} prefixed"),
    Shape.PREFIX_WITHIN: ("prefixed", '{word} "within" ages prefixed'),
    Shape.PREFIX_FOR: ("prefixed", '{word} "for" ages boundary? prefixed'),
    Shape.INFIX: ("link", "prefixed {word} prefixed"),
    Shape.INFIX_WITHIN: ("link", 'prefixed {word} "within" ages prefixed'),
    Shape.CALL_OF_CONDITION: ("predicate", '{word} "(" disjunction ")" span comparison literal'),
    Shape.CALL_SINCE: ("predicate", '{word} "(" disjunction ")" SINCE prefixed comparison literal'),
    Shape.CALL_OF_FACT: ("predicate", '{word} "(" filtered ")" span comparison literal'),
}
"""The rule that each shape extends, and the extension. The transformer has a method for each shape."""


def grammar() -> str:
    """Return the whole grammar, for lark."""
    own = resources.files("engine.language.text").joinpath("grammar.lark").read_text(encoding="utf-8")
    return "\n".join([own, *dict.fromkeys(_lines())])


def _lines() -> Iterator[str]:
    # These are lexed as WORD. The reader decides where they are keywords.
    yield f"%declare {' '.join(sorted(contextual_keywords())).upper()}"
    yield f"sugar: {' | '.join(SUGAR).upper()}"
    for form in FORMS.values():
        if form.shape is not None:
            terminal = form.word.upper()
            if not form.is_addition:
                yield f'{terminal}: "{form.word}"'
            if form.word not in AGGREGATE_WORDS or form.shape is Shape.CALL_SINCE:
                # Others are read as comparisons of terms.
                rule, expansion = _RULES[form.shape]
                yield f"%extend {rule}: {expansion.format(word=terminal)} -> {form.shape.name.lower()}"


# -- parsing ------------------------------------------------------------------------------------------------

_BLANKS: Final = " \t\r\n"
_UNIT_LETTERS: Final = "".join(UNITS_MS)

_PREFIXES = {"NOT", "PER", "ALL", "ANY", "SOME", "ANYWHERE"}
"""The terminals that, like prefixes and calls over conditions, open a condition around another."""
_CONNECTIVES = {"AND", "OR"}
"""The terminals that, like infixes, stand between two conditions."""

_WORDS_BACK_MAX = 4
"""The maximum distance of a misspelled word before the failing one: in `smu(a) > 1` it is four words
before."""


def parse(source: str | Source | Mapping[str, object], limits: Limits = DEFAULT_LIMITS) -> Condition:
    """Return the condition of a text or of a decoded JSON document.

    A text whose first character, apart from blanks, is `{` is JSON; other texts are in the text language. For
    a `Source`, messages have its positions. Raises ConditionError: 1303 before anything else; 1300 with line,
    column and caret if the text cannot be read; otherwise every 1301 and 1302 with its place.
    """
    if not isinstance(source, str | Source):
        return condition_from_document(source, limits)
    text = source if isinstance(source, Source) else Source(source)
    if text.text.lstrip(_BLANKS).startswith("{"):
        return condition_from_json(text, limits)
    check_text_size(text.text, limits)
    return validated(_Reader(text, limits).read(), limits, text)


@derived
def _parser() -> Lark:
    """Build the parser on first use, which takes about 50 ms. Parsing does not change it."""
    return Lark(grammar(), parser="lalr", lexer="basic")


class _Reader:
    """Reads one text. It keeps the tokens, so that the explanation of an error can try others."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._tokens: list[Token] = []
        """All tokens of the text, up to the first place where none begins."""
        self._fed = 0
        self._state = _parser().parse_interactive(source.text)

    def read(self) -> SpannedObject:
        """Return the document of the text. Raises ConditionError."""
        stopped = None
        try:
            self._tokens += _tokens_of(self._state)
        except UnexpectedCharacters as error:
            stopped = error.pos_in_stream
        for index in range(len(self._tokens)):
            self._feed(_in_context(self._tokens, index, self._state))
        if stopped is not None:
            self._refuse_character(stopped)
        end = len(self._source.text.rstrip(_BLANKS))
        self._tokens.append(Token("$END", "", start_pos=end, end_pos=end))
        document = document_of(self._feed(self._tokens[-1]))
        assert isinstance(document, SpannedObject)
        return document

    def _feed(self, token: Token) -> object:
        """Feed the next token to the parser. At the end of the text, return its tree."""
        self._tokens[self._fed] = token
        self._fed += 1
        if token.type != "WORD" or token.lower() not in keywords():
            with suppress(UnexpectedToken):
                built: object = self._state.feed_token(token)
                self._check_literal(token)
                return built
        return self._refuse()

    def _check_literal(self, token: Token) -> None:
        """Refuse a well-formed literal that JSON cannot express."""
        offset = _offset_of(token)
        if token.type == "STRING":
            string_value(token, offset, self._fail)
        elif token.type in ("NUMBER", "DURATION"):
            amount = token.rstrip(_UNIT_LETTERS)
            if not amount.isdecimal() or len(amount) > self._limits.digits_max:
                number_value(amount, offset, self._limits, self._fail)

    def _refuse(self) -> NoReturn:
        """Refuse the text at its last token, or at an earlier word that caused the error."""
        failed = self._fed - 1
        self._fail(*explain(self._source.text, self._words(), failed, _ParserTrials(self._tokens, failed)))

    def _refuse_character(self, offset: int) -> NoReturn:
        if self._source.text[offset] == '"':
            explain_string(self._source.text, offset, self._fail)
        trials = _ParserTrials(self._tokens, self._fed)
        self._fail(*explain_character(self._source.text, self._words(), offset, trials))

    def _words(self) -> list[Word]:
        """Return all words. Contextual keywords after the last fed one are still names."""
        return [Word(token.type, str(token), _offset_of(token)) for token in self._tokens]

    def _fail(self, offset: int, sentence: str) -> NoReturn:
        """Refuse the text with 1300, or with 1303 if it is already too deep."""
        # The part read so far may be a whole condition. Python reads no numbers with very many digits.
        with suppress(UnexpectedToken, ValueError):
            tree = _copy_of(self._state).feed_token(Token("$END", "", start_pos=0))
            check_size(document_of(tree), self._limits)
        _check_depth([*map(document_of, self._state.parser_state.value_stack)], self._limits)
        raise self._source.refusal(offset, sentence)


class _ParserTrials:
    """The parser's states before each of the last tokens up to an error, to try other tokens there."""

    def __init__(self, tokens: Sequence[Token], last: int) -> None:
        """`last` is the index of the token that failed; the parser accepted those before it."""
        self._tokens = tokens
        self.first = max(0, last - _WORDS_BACK_MAX)
        state = _parser().parse_interactive("")
        # Without callbacks, the parser only accepts or rejects tokens.
        state.parser_state.parse_conf.callbacks = {}
        for token in tokens[: self.first]:
            state.feed_token(token)
        self._states = [state]
        for token in tokens[self.first : last]:
            state = _copy_of(state)
            state.feed_token(token)
            self._states.append(state)

    def accepted(self, index: int) -> AbstractSet[str]:
        """Return the terminals that the parser accepts in place of a token."""
        accepts: Callable[[], set[str]] = self._states[index - self.first].accepts
        return accepts()

    def continues(self, index: int, terminal: str, last: int) -> bool:
        """Return whether the parser can read up to the last token with another terminal in place of one."""
        state = _copy_of(self._states[index - self.first])
        tokens = [*self._tokens]
        tokens[index] = Token(terminal, "")
        try:
            for at in range(index, last + 1):
                tokens[at] = _in_context(tokens, at, state)
                state.feed_token(tokens[at])
        except UnexpectedToken:
            return False
        return True


def _in_context(tokens: Sequence[Token], index: int, state: InteractiveParser) -> Token:
    """Return a token with its terminal as a keyword if it is a contextual one, otherwise unchanged.

    `state` is the parser's state before the token.
    """
    token = tokens[index]
    if token not in contextual_keywords():
        return token
    expected: Callable[[], Collection[str]] = state.choices
    is_one = is_keyword(tokens, index, expected(), partial(_juxtaposes, state))
    return token.update(type=token.upper() if is_one else "WORD")


def _juxtaposes(state: InteractiveParser) -> bool:
    """Return whether a condition in parentheses could follow if the next token were a name."""
    trial = _copy_of(state)
    # It must not build anything: the two states share the lists of incomplete products or sums.
    trial.parser_state.parse_conf = copy(trial.parser_state.parse_conf)
    trial.parser_state.parse_conf.callbacks = {}
    try:
        trial.feed_token(Token("WORD", "x", start_pos=0))
        trial.feed_token(Token("LPAR", "(", start_pos=0))
    except UnexpectedToken:
        return False
    return True


def _offset_of(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


def _tokens_of(state: InteractiveParser) -> Iterator[Token]:
    lex: Callable[[object], Iterator[Token]] = state.lexer_thread.lex
    return lex(state.parser_state)


def _copy_of(state: InteractiveParser) -> InteractiveParser:
    """Copy a parser's state. The two states share the values on their stacks."""
    copied: Callable[..., InteractiveParser] = state.copy
    return copied(deepcopy_values=False)


def _check_depth(values: Sequence[object], limits: Limits) -> None:
    """Refuse the beginning of a text with 1303 if every possible ending leaves it too deep or too large.

    `values` is the parser's stack: complete documents, and the tokens that opened incomplete ones.
    """
    opened = 0
    prefixes = _PREFIXES | {"ABS", "AGE"}
    prefixes |= terminals_of(PREFIXES | {Shape.CALL_OF_CONDITION, Shape.CALL_SINCE})
    connectives = _CONNECTIVES | terminals_of(INFIXES)
    for index, value in enumerate(values):
        match value:
            case SpannedObject() | Part(SpannedObject()):
                check_size(_document(value), limits, opened)
            case Tree(children=children) if str(value.data).startswith(("__disjunction", "__conjunction")):
                # The members of an `and` or `or` from the second on. The first precedes them on the stack.
                opened += 1
                for document in (values[index - 1], *children):
                    check_size(_document(document), limits, opened)
            case Tree(children=children):
                # Their other children, names and literals, are no larger than a leaf.
                for document in children:
                    check_size(_document(document), limits, opened)
            case Token(type=terminal) if terminal in connectives and isinstance(
                values[index - 1], SpannedObject
            ):
                opened += 1
                check_size(values[index - 1], limits, opened)
            case Token(type="PLUS" | "MINUS" | "SLASH"):
                # A sum or the like, with operands to come. A product may be an amount, which is not a term.
                opened += 1
            case Token(type=terminal) if terminal in prefixes and not _is_operator(values, index):
                opened += 1
            case Filtered(where=SpannedObject() as where):
                check_size(where, limits, opened + 1)
            case Token(type="WHERE") if not _is_keyed(values, index):
                # Without a condition, `sum(x)` is as deep as a leaf.
                opened += 1
    if opened >= limits.depth_max:
        raise too_deep(limits)


def _document(value: object) -> object:
    """Return the document of a condition or a term. `0.3 * x` may be an amount, no larger than a leaf."""
    document = value.value if isinstance(value, Part) else value
    return value if is_amount(document) else document


def _is_operator(values: Sequence[object], index: int) -> bool:
    """Return whether a `not` belongs to `not in`: it follows a name that is neither a key nor a window."""
    match values[max(0, index - 2) : index]:
        case [Token(type="PER" | "WITHIN" | "FOR"), Part()]:
            return False
        case [*_, Part()]:
            return True
        case _:
            return False


def _is_keyed(values: Sequence[object], index: int) -> bool:
    """Return whether a `where` belongs to a `per`, which is already counted."""
    before = values[index - 2]
    return isinstance(before, Token) and before.type == "PER"
