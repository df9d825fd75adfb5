"""Breaks source text mechanically: each mutant differs from it in one comparison, constant, birth or update.

Code is mutated by its syntax tree. The code templates that the compiler writes rules from are strings, and
those are mutated token by token.
"""

import ast
import io
import itertools
import re
import token
import tokenize
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple


class Mutant(NamedTuple):
    """One way to break a file: `old` at `start` becomes `new`."""

    file: str
    start: int
    old: str
    new: str
    where: str
    """The function or class that it is in."""
    line: str
    """The line of source that it is in, without indentation."""
    nth: int = 0
    """Its index where the line has several places for the same change; else 0."""

    @property
    def change(self) -> str:
        old, new = (text.strip().partition("\n")[0] or "nothing" for text in (self.old, self.new))
        return f"{old} -> {new}" + (f", place {self.nth}" if self.nth else "")

    def applied(self, source: str) -> str:
        assert source.startswith(self.old, self.start), self
        return source[: self.start] + self.new + source[self.start + len(self.old) :]

    def __str__(self) -> str:
        return f"{self.file}, {self.where}: `{self.line}`: {self.change}"


COMPARISONS: Final = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
}
OPERATORS: Final = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.LShift: ("<<", ">>"),
}
OTHER_FUNCTIONS: Final = {"min": "max", "max": "min", "all": "any", "any": "all"}
OTHER_ACTIONS: Final = {
    "WRITE": ("CLEAR", "KEEP"),
    "BEGIN": ("WRITE",),
    "KEEP": ("WRITE",),
    "CLEAR": ("WRITE", "KEEP"),
}
OTHER_OPERANDS: Final = {"left": "right", "right": "left"}
BIRTHS: Final = ("birth", "events_seen", "tick", "complete_at", "previous_tick")

IN_TEMPLATES: Final = (
    (r"(?<= )<=(?= )", ("<", ">")),
    (r"(?<= )>=(?= )", (">", "<")),
    (r"(?<= )<(?= )", ("<=", ">=")),
    (r"(?<= )>(?= )", (">=", "<=")),
    (r"(?<= )==(?= )", ("!=",)),
    (r"(?<= )!=(?= )", ("==",)),
    (r"\bis not\b", ("is",)),
    (r"\bis\b(?! not)", ("is not",)),
    (r"\bnot in\b", ("in",)),
    (r"(?<!not )\bin\b", ("not in",)),
    (r"\band\b", ("or",)),
    (r"\bor\b", ("and",)),
    (r"\bnot (?!in\b)", ("",)),
    (r"(?<=[\w}] )-(?= [\w{])", ("+",)),
    (r"\bTrue\b", ("False",)),
    (r"\bFalse\b", ("True",)),
    (r"\bNone\b", ("0",)),
    (r"\bNEVER\b", ("now", "0")),
    (r"\bnow\b", ("NEVER", "tick")),
    (r"\btick\b", ("0", "now")),
    (r"\bpast\b", ("now",)),
    (r"\bfields\b", ("vars",)),
    (r"\bvars\b", ("fields",)),
    (r"\belif\b", ("if",)),
)


class _Source:
    """A file: its text, its tree, and the positions of nodes in the text."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.tree = ast.parse(text)
        self.lines = text.splitlines(keepends=True)
        self.names = list(_names(self.tree, ""))

    def offset(self, line: int, column: int) -> int:
        """Return the position of a column that counts bytes, as the tree's do."""
        before = sum(map(len, self.lines[: line - 1]))
        return before + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        start = self.offset(node.lineno, node.col_offset)
        return start, self.offset(node.end_lineno, node.end_col_offset)

    def mutant(self, start: int, old: str, new: str) -> Mutant:
        line = self.text.count("\n", 0, start) + 1
        inside = [name for name, first, last in self.names if first <= line <= last]
        return Mutant(self.file, start, old, new, (inside or ["module"])[-1], self.lines[line - 1].strip())

    def replaced(self, node: ast.AST, *replacements: str) -> Iterator[Mutant]:
        """Yield the mutants in which something else replaces a node."""
        start, end = self.span(node)
        for new in replacements:
            yield self.mutant(start, self.text[start:end], new)

    def between(
        self, left: ast.AST, right: ast.AST, operator: str, others: Iterable[str]
    ) -> Iterator[Mutant]:
        """Yield the mutants in which another operator is between two nodes."""
        end, start = self.span(left)[1], self.span(right)[0]
        pattern = r"\s+".join(map(re.escape, operator.split()))
        found = re.compile(rf"\b{pattern}\b" if operator[0].isalpha() else pattern).search(
            self.text, end, start
        )
        assert found, f"{self.file}: no `{operator}` before {start}"
        for new in others:
            yield self.mutant(found.start(), found.group(), new)


def _names(tree: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Yield each function, class and constant with its first and last line, outer ones first."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield prefix + name, node.lineno, node.end_lineno or node.lineno
                yield from _names(node, f"{prefix}{name}.")
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]) if (
                not prefix
            ):
                yield name, node.lineno, node.end_lineno or node.lineno


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of code that acts: not those of annotations, assertions, and inside f-strings.

    A number of nanoseconds is left out: what something costs chooses between two ways to one answer.
    """
    match tree:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if (
            name.lower().endswith("_ns")
        ):
            return
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not isinstance(node, ast.Assert | ast.JoinedStr | ast.Raise):
                yield node
                yield from _nodes(node)


def _in_code(source: _Source) -> Iterator[Mutant]:
    for node in _nodes(source.tree):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                for before, op, after in zip([left, *comparators], ops, comparators, strict=False):
                    operator = _SPELLING[type(op)]
                    yield from source.between(before, after, operator, COMPARISONS[operator])
            case ast.BoolOp(op=op, values=values):
                operator, other = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                for before, after in itertools.pairwise(values):
                    yield from source.between(before, after, operator, [other])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                start, end = source.span(node)[0], source.span(operand)[0]
                yield source.mutant(start, source.text[start:end], "")
            case ast.BinOp(op=op, left=left, right=right) if type(op) in OPERATORS:
                operator, other = OPERATORS[type(op)]
                yield from source.between(left, right, operator, [other])
            case ast.Constant(value=bool(value)):
                yield from source.replaced(node, str(not value))
            case ast.Constant(value=int(value)):
                yield from source.replaced(node, str(value + 1), str(value - 1))
            case ast.Name(ctx=ast.Load(), id=name) | ast.Attribute(ctx=ast.Load(), attr=name) if (
                name in BIRTHS
            ):
                yield from source.replaced(node, "0")
            case ast.Call(func=ast.Name(id=name)) if name in OTHER_FUNCTIONS:
                yield from source.replaced(node.func, OTHER_FUNCTIONS[name])
            case ast.Attribute(value=ast.Name(id="Action"), attr=action) if action in OTHER_ACTIONS:
                yield from source.replaced(node, *(f"Action.{other}" for other in OTHER_ACTIONS[action]))
            case ast.Call(func=ast.Name(id="Case"), args=[ast.Constant(value=str(name)) as operand, _]) if (
                name in OTHER_OPERANDS
            ):
                yield from source.replaced(operand, f'"{OTHER_OPERANDS[name]}"')
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.If(test=test) | ast.IfExp(test=test):
                yield from source.replaced(test, "True", "False")
            case ast.comprehension(ifs=[test]):
                yield from source.replaced(test, "True", "False")
            case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
                pass
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete():
                yield from source.replaced(node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield from source.replaced(node, "pass")
            case ast.Continue():
                yield from source.replaced(node, "break")


_SPELLING: Final = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


def _in_templates(source: _Source) -> Iterator[Mutant]:
    for start, text in _strings(source):
        for pattern, replacements in IN_TEMPLATES:
            for found in re.finditer(pattern, text):
                for new in replacements:
                    yield source.mutant(start + found.start(), found.group(), new)


def _strings(source: _Source) -> Iterator[tuple[int, str]]:
    """Yield the strings that are not docstrings, by their content; what f-strings insert is blanked out."""
    prose = {
        source.span(node.value)[0]
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    before = [0, *itertools.accumulate(map(len, source.lines))]
    fstring_text = getattr(token, "FSTRING_MIDDLE", None)
    for each in tokenize.generate_tokens(io.StringIO(source.text).readline):
        start = before[each.start[0] - 1] + each.start[1]
        if each.type == token.STRING and start not in prose:
            quoted = source.text[start : before[each.end[0] - 1] + each.end[1]]
            is_f = quoted[0] in "fF"
            yield start, re.sub(r"\{[^{}]*\}", _blank, quoted) if is_f else quoted
        elif each.type == fstring_text:
            yield start, source.text[start : before[each.end[0] - 1] + each.end[1]]


def _blank(found: re.Match[str]) -> str:
    return " " * len(found.group())


def mutants_of(file: str, text: str, *, templates: bool) -> list[Mutant]:
    """Return every mechanical mutant of a file, in order. `templates`: its strings hold code, mutated too."""
    source = _Source(file, text)
    found = {*_in_code(source), *(_in_templates(source) if templates else ())}
    alike = dict[tuple[int, str, str], list[Mutant]]()
    for mutant in sorted(found, key=lambda mutant: (mutant.start, mutant.new)):
        line = text.count("\n", 0, mutant.start)
        alike.setdefault((line, mutant.old, mutant.new), []).append(mutant)
    numbered = [
        mutant._replace(nth=nth if len(group) > 1 else 0)
        for group in alike.values()
        for nth, mutant in enumerate(group, start=1)
    ]
    return sorted(numbered, key=lambda mutant: (mutant.start, mutant.new))
