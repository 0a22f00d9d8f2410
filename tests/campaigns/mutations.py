"""Mutations: small changes of a source text that a test should notice, as values.

A mutation changes an operator or a constant, turns a condition round, or takes a statement away. Nothing is
mutated that does no work when it runs: annotations, docstrings, type aliases.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitXor: ("^", "&"),
}
LOGIC = {ast.And: ("and", "or"), ast.Or: ("or", "and")}


@dataclass(frozen=True)
class Mutation:
    """A change of one place of a file.

    Args:
        file: the path inside of the package.
        function: the qualified name of the function that holds the place; empty at the top of a module.
        line: the line, from 1.
        begin: the first byte that is changed.
        end: the byte after the last one.
        after: the text in its place.
        shown: the changed line, before and after.
    """

    file: str
    function: str
    line: int
    begin: int
    end: int
    after: str
    shown: str

    def applied(self, source: bytes) -> bytes:
        """Returns the mutated text."""
        return source[: self.begin] + self.after.encode() + source[self.end :]


def mutations(package: Path, file: str) -> list[Mutation]:
    """Returns all mutations of a file of a package, in the order of their places."""
    return list(dict.fromkeys(_Finder(file, (package / file).read_bytes()).mutations()))


class _Finder:
    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._source = file, source
        lengths = [0, *map(len, source.splitlines(keepends=True))]
        self._starts = [sum(lengths[: line + 1]) for line in range(len(lengths))]

    def mutations(self) -> Iterator[Mutation]:
        tree = ast.parse(self._source)
        yield from self._body(tree.body, "")

    def _body(self, statements: list[ast.stmt], function: str) -> Iterator[Mutation]:
        for number, statement in enumerate(statements):
            is_docstring = number == 0 and isinstance(statement, ast.Expr)
            if not is_docstring:
                yield from self._statement(statement, function)

    def _statement(self, node: ast.stmt, function: str) -> Iterator[Mutation]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from self._definition(node, f"{function}.{node.name}" if function else node.name)
            return
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
            return
        if self._may_be_taken_away(node):
            yield self._mutation(function, self._offset(node), self._end(node), "pass")
        for name, value in ast.iter_fields(node):
            if name not in {"annotation", "type_comment", "targets", "target"}:
                for child in value if isinstance(value, list) else [value]:
                    yield from self._part(child, function)
        if isinstance(node, ast.If | ast.While) and not self._is_negation(node.test):
            test = self._text(node.test)
            yield self._mutation(function, self._offset(node.test), self._end(node.test), f"not ({test})")

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, name: str
    ) -> Iterator[Mutation]:
        if not isinstance(node, ast.ClassDef):
            for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                yield from self._expression(default, name)
        yield from self._body(node.body, name)

    def _part(self, node: object, function: str) -> Iterator[Mutation]:
        if isinstance(node, ast.stmt):
            yield from self._statement(node, function)
        elif isinstance(node, ast.ExceptHandler):
            yield from self._body(node.body, function)
        elif isinstance(node, ast.withitem):
            yield from self._expression(node.context_expr, function)
        elif isinstance(node, ast.expr):
            yield from self._expression(node, function)

    def _may_be_taken_away(self, node: ast.stmt) -> bool:
        """Whether the rest runs without it: it must not be the only definition of a name."""
        if isinstance(node, ast.Expr):
            return not isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Assign):
            return not any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
        return isinstance(node, ast.AugAssign | ast.Raise | ast.Delete | ast.Continue | ast.Break)

    @staticmethod
    def _is_negation(node: ast.expr) -> bool:
        return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)

    def _expression(self, node: ast.expr, function: str) -> Iterator[Mutation]:
        if isinstance(node, ast.JoinedStr):
            return  # before Python 3.12 the places of its parts are not known
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, right, operator in zip(sides, sides[1:], node.ops, strict=False):
                yield from self._operator(function, left, right, COMPARISONS.get(type(operator)))
        elif isinstance(node, ast.BinOp):
            yield from self._operator(function, node.left, node.right, ARITHMETIC.get(type(node.op)))
        elif isinstance(node, ast.BoolOp):
            for left, right in itertools.pairwise(node.values):
                yield from self._operator(function, left, right, LOGIC[type(node.op)])
        else:
            yield from self._of_one(node, function)
        for child in self._children(node):
            yield from self._expression(child, function)

    def _of_one(self, node: ast.expr, function: str) -> Iterator[Mutation]:
        begin, end = self._offset(node), self._end(node)
        if self._is_negation(node):
            # Its operand may begin with a parenthesis that belongs to no expression.
            yield self._mutation(function, begin, begin + len("not "), "")
        elif isinstance(node, ast.IfExp):
            test = self._text(node.test)
            yield self._mutation(function, self._offset(node.test), self._end(node.test), f"(not ({test}))")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            after = str(not node.value) if isinstance(node.value, bool) else repr(node.value + 1)
            yield self._mutation(function, begin, end, after)

    @staticmethod
    def _children(node: ast.AST) -> Iterator[ast.expr]:
        """Gives the expressions right below one, also through comprehensions, keywords and lambdas."""
        below = list(ast.iter_child_nodes(node))
        while below:
            part = below.pop(0)
            if isinstance(part, ast.expr):
                yield part
            else:
                below += ast.iter_child_nodes(part)

    def _operator(
        self, function: str, left: ast.expr, right: ast.expr, change: tuple[str, str] | None
    ) -> Iterator[Mutation]:
        if change is None:
            return
        begin, end = self._end(left), self._offset(right)
        between = self._source[begin:end].decode()
        pattern = re.escape(change[0]).replace(r"\ ", r"\s+")
        pattern = rf"\b{pattern}\b" if change[0].isidentifier() or " " in change[0] else pattern
        place = re.search(pattern, between)
        if place is not None:
            first = begin + len(between[: place.start()].encode())
            yield self._mutation(function, first, first + len(place[0].encode()), change[1])

    def _mutation(self, function: str, begin: int, end: int, after: str) -> Mutation:
        line = self._source[:begin].count(b"\n") + 1
        first = self._starts[line - 1]
        last = self._source.find(b"\n", end)
        before = self._source[first:last].decode().strip()
        changed = (self._source[first:begin] + after.encode() + self._source[end:last]).decode().strip()
        return Mutation(self._file, function, line, begin, end, after, f"{before}  ->  {changed}")

    def _text(self, node: ast.expr) -> str:
        return self._source[self._offset(node) : self._end(node)].decode()

    def _offset(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset
