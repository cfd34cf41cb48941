"""The statements of a module: what each binds, uses and imports, and its form without comments and layout."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Chain = tuple[str, ...]
"""a name and the attributes after it, as in a.b.c"""
DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BLOCKS = (ast.If, ast.Try, ast.TryStar, ast.For, ast.While, ast.With, ast.Match)
BY_NAME = ("__import__", "import_module")
CALLED = "()"
"""in place of the name in an import by a call"""
WITHOUT_MEANING = ("ctx", "kind", "type_comment", "type_ignores")
OURS = "lightning_tfm"
"""in which classes may move: import paths within it do not count"""


@dataclass(frozen=True)
class Statement:
    """One at the top of a module."""

    node: ast.stmt
    binds: frozenset[str]
    """names that it gives a value, or may change"""
    uses: frozenset[Chain]
    imports: tuple[tuple[str, str], ...]
    """(name, what it is) of every import in it; `*`: all names; empty: loaded and not bound; CALLED"""
    acts: bool
    """whether it does more than bind names when the module is imported"""
    decorators: frozenset[str]
    computed: bool
    """whether it may use what its source does not name"""

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, (ast.Import, ast.ImportFrom))


@lru_cache(512)
def statements(source: bytes, package: str) -> tuple[Statement, ...]:
    """Of a module inside `package`, without what it does as a program. Raises SyntaxError, ValueError."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list) and isinstance(node, ast.AST):
            code = [inner for inner in body if not _is_text(inner)]
            node.body = code or ([] if isinstance(node, ast.Module) else [ast.Pass()])  # type: ignore[attr-defined]
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    imported = frozenset(name for node in imports for name, _ in _imports(node, package))
    return tuple(_statement(node, package, imported) for node in tree.body if not _is_program(node))


@lru_cache(1024)
def imported_names(source: bytes, package: str) -> frozenset[str]:
    """What the imports of a module inside `package` name: modules, and what they take from them. Raises as above."""
    return frozenset(target for _, target in _imports(ast.parse(source), package) if target)


def _statement(node: ast.stmt, package: str, imported: frozenset[str]) -> Statement:
    return Statement(
        node,
        frozenset(_binds(node)),
        frozenset(_chains(node)),
        tuple(dict.fromkeys(_imports(node, package))),
        _acts(node, imported),
        frozenset(chain[0] for decorator in getattr(node, "decorator_list", ()) for chain in _chains(decorator)),
        any(_is_computed(inner) for inner in ast.walk(node)),
    )


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_program(node: ast.stmt) -> bool:
    """if __name__ == "__main__": …"""
    return isinstance(node, ast.If) and not node.orelse and ("__name__",) in _chains(node.test)


def _chains(node: ast.AST) -> set[Chain]:
    """The names in it, each with the attributes after it."""
    chains: set[Chain] = set()
    todo = [node]
    while todo:
        top = inner = todo.pop()
        names: list[str] = []
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            chains.add((inner.id, *reversed(names)))
        else:
            todo += ast.iter_child_nodes(top if inner is top else inner)
    return chains


def _root(node: ast.AST) -> str:
    """The name at the start of a.b[c].d, or empty."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _executed_nodes(node: ast.stmt) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: not those inside functions."""
    todo: list[ast.AST] = [node]
    while todo:
        inner = todo.pop()
        yield inner
        if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            todo += ast.iter_child_nodes(inner)


def _binds(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, DEFINES):
        yield node.name
    for inner in ast.walk(node):
        if isinstance(inner, ast.Global):
            yield from inner.names
    if isinstance(node, DEFINES):
        return
    for inner in _executed_nodes(node):
        if isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript)) and not isinstance(inner.ctx, ast.Load):
            yield _root(inner)
        elif isinstance(inner, DEFINES):
            yield inner.name
        elif isinstance(inner, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in inner.names)
        elif isinstance(inner, ast.For):  # which may change what it goes through
            yield from (chain[0] for chain in _chains(inner.iter))
        elif isinstance(inner, ast.Call):  # which may change what it is given
            yield from (_root(value) for value in (*inner.args, *(k.value for k in inner.keywords)))
        elif isinstance(inner, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and inner.name:
            yield inner.name


def _acts(node: ast.stmt, imported: frozenset[str]) -> bool:
    if isinstance(node, BLOCKS):
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            inner += part.body
        return any(_acts(child, imported) for child in inner)
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [getattr(node, "target", None)]
    stored = [target for target in targets if isinstance(target, (ast.Attribute, ast.Subscript))]
    return any(_root(target) in imported or not _root(target) for target in stored)


def _is_computed(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if getattr(node.func, "attr", getattr(node.func, "id", "")) in BY_NAME:
        return not (node.args and isinstance(node.args[0], ast.Constant))
    name = getattr(node.func, "id", "")  # not model.eval()
    return name in ("exec", "eval", "globals") or (name == "vars" and not node.args)


def _imports(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            for alias in inner.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
                yield "", alias.name
        elif isinstance(inner, ast.ImportFrom):
            base = ".".join([*_above(package, inner.level), *([inner.module] if inner.module else [])])
            yield "", base
            yield from (("*", base) if a.name == "*" else (a.asname or a.name, f"{base}.{a.name}") for a in inner.names)
        elif isinstance(inner, ast.Call) and inner.args and isinstance(inner.args[0], ast.Constant):
            called = getattr(inner.func, "attr", getattr(inner.func, "id", ""))
            if called in BY_NAME and isinstance(inner.args[0].value, str):
                name = inner.args[0].value.lstrip(".")
                named = [a.value for a in inner.args[1:] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                level = len(inner.args[0].value) - len(name)
                yield CALLED, ".".join([*_above(named[0] if named else package, level), name])


def _above(package: str, level: int) -> list[str]:
    """The packages that `level` dots at the head of a name mean, in a module inside `package`."""
    return package.split(".")[: len(package.split(".")) + 1 - level] if level else []


def shorten(target: str) -> str:
    """A dotted name; of ours without the modules between."""
    return f"{OURS}.{target.rpartition('.')[2]}" if target.startswith(f"{OURS}.") else target


def canonical(value: Any) -> str:
    """The tree in one line, the same for every version of Python's ast that reads it."""
    if isinstance(value, list):
        return f"[{', '.join(map(canonical, value))}]"
    if isinstance(value, ast.Attribute) and _root(value) == OURS:
        return f"Name(id='{OURS}.{value.attr}')"
    if isinstance(value, ast.alias):
        return f"alias({shorten(value.name)!r}, {value.asname!r})"
    if isinstance(value, ast.ImportFrom) and (value.module or "").startswith(OURS):
        return f"ImportFrom({OURS!r}, {canonical(value.names)})"
    if not isinstance(value, ast.AST):
        return f"{type(value).__name__} {value!a}"
    fields = ((name, inner) for name, inner in ast.iter_fields(value) if name not in WITHOUT_MEANING)
    parts = [f"{name}={canonical(inner)}" for name, inner in fields if inner is not None and inner != []]
    return f"{type(value).__name__}({', '.join(parts)})"
