"""The code that a user-defined class computes by, in a form that comments, docstrings and layout do not change.

From the class's own statement it follows every name to the statements that bind it: functions, constants, base classes,
decorators, in the user's other modules too. Of an imported module only what is used counts, and what importing it does
beyond binding names: calls, assignments to attributes of what it imported, decorators of the user's own. Where a source
does not say what is used (`exec`, `globals()`, an import by a computed name, a module's `__getattr__`, a module passed
on as an object) the whole module counts. Nothing is imported for it.
"""

import builtins
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lightning_tfm.user_code.statements import CALLED, DEFINES, Chain, Statement, canonical, shorten

Reader = Callable[[str], tuple[Statement, ...] | bytes | None]
"""module -> its statements, the bytes of one that is no Python source, None where it is not the user's"""


@dataclass
class Slice:
    """What counts of the user's modules."""

    read: Reader
    chosen: dict[str, set[int]] = field(default_factory=dict)
    """module -> places of its statements"""
    aliases: dict[str, set[str]] = field(default_factory=dict)
    """module -> `name = what it is`, of the imports that count"""
    compiled: dict[str, str] = field(default_factory=dict)
    """module that is no Python source -> sha256 of its file"""
    unread: set[str] = field(default_factory=set)
    """modules that count whole since a source does not say what is used of them"""
    _loaded: set[str] = field(default_factory=set)
    _needed: set[tuple[str, str, Chain, bool]] = field(default_factory=set)
    _todo: list[tuple[str, Statement]] = field(default_factory=list)

    def digest(self, starts: Iterable[tuple[str, str]]) -> str:
        """sha256 of what counts of these names, (module, name)."""
        for module, name in starts:
            self._need(module, name, (), True)
            if not any(name in statement.binds for statement in self._body(module)):
                self._take_whole(module)
        while self._todo:
            module, statement = self._todo.pop()
            if statement.computed:
                self._take_whole(module)
            for target in (target for name, target in statement.imports if name == CALLED):
                self._follow(target, ())
            for chain in statement.uses:
                for target in (target for name, target in statement.imports if name == chain[0]):
                    self._follow(target, chain[1:])
                self._need(module, chain[0], chain[1:], False)
        return hashlib.sha256(self._text().encode()).hexdigest()

    def _text(self) -> str:
        lines = [f"{name} {digest}" for name, digest in sorted(self.compiled.items())]
        for name in sorted(self.chosen.keys() | self.aliases.keys()):
            body = self._body(name)
            lines += [name, *sorted(self.aliases.get(name, ()))]
            lines += [canonical(body[place].node) for place in sorted(self.chosen.get(name, ()))]
        return "\n".join(lines)

    def _body(self, module: str) -> tuple[Statement, ...]:
        body = self.read(module)
        if isinstance(body, bytes):
            self.compiled[module] = hashlib.sha256(body).hexdigest()
        return body if isinstance(body, tuple) else ()

    def _load(self, module: str) -> None:
        """What happens when `module` is imported, with the packages around it and what it imports."""
        if module in self._loaded:
            return
        self._loaded.add(module)
        if outer := module.rpartition(".")[0]:
            self._load(outer)
        for place, statement in enumerate(self._body(module)):
            if statement.acts or any(self._is_users(module, name) for name in statement.decorators):
                self._choose(module, place)
            if not isinstance(statement.node, DEFINES):
                self._load_targets(statement)

    def _load_targets(self, statement: Statement) -> None:
        for _, target in statement.imports:
            self._load(self._module_of(target.split(".")))

    def _module_of(self, parts: list[str]) -> str:
        """The longest start of a dotted name that is a module of the user's, or empty."""
        wholes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((whole for whole in wholes if self.read(whole) is not None), "")

    def _is_users(self, module: str, name: str) -> bool:
        """Whether `name` in `module` is a function or class of the user's."""
        for statement in self._body(module):
            if name in statement.binds:
                targets = [target for own, target in statement.imports if own == name]
                if not targets or any(self._module_of(target.split(".")) for target in targets):
                    return True
        return False

    def _choose(self, module: str, place: int) -> None:
        chosen = self.chosen.setdefault(module, set())
        if place not in chosen:
            chosen.add(place)
            statement = self._body(module)[place]
            self._load_targets(statement)
            self._todo.append((module, statement))

    def _need(self, module: str, name: str, rest: Chain, outside: bool) -> None:
        """What `name` is in `module`; as far as that is a module, what its attributes `rest` are. `outside`: asked by
        another module, so that `__getattr__` answers."""
        if (module, name, rest, outside) in self._needed:
            return
        self._needed.add((module, name, rest, outside))
        self._load(module)
        body, bound = self._body(module), False
        for place, statement in enumerate(body):
            if name not in statement.binds:
                continue
            bound = True
            if not statement.is_import:
                self._choose(module, place)
            for target in (target for own, target in statement.imports if own == name):
                if statement.is_import:
                    self.aliases.setdefault(module, set()).add(f"{name} = {shorten(target)}")
                self._follow(target, rest)
        if bound or (not outside and hasattr(builtins, name)):
            return
        for target in (target for statement in body for own, target in statement.imports if own == "*"):
            self._follow(target, (name, *rest))
        if outside and any("__getattr__" in statement.binds for statement in body):
            self._take_whole(module)

    def _follow(self, target: str, rest: Chain) -> None:
        """What a dotted name and its attributes `rest` are, if the user's."""
        parts = [*target.split("."), *rest]
        module = self._module_of(parts)
        if not module:
            return
        self._load(module)
        end = module.count(".") + 1
        if end < len(parts):
            self._need(module, parts[end], tuple(parts[end + 1 :]), True)
        else:
            self._take_whole(module)
        package, _, name = module.rpartition(".")  # which may give that name to something else
        if package and any(name in statement.binds for statement in self._body(package)):
            self._need(package, name, tuple(parts[end:]), True)

    def _take_whole(self, module: str) -> None:
        self.unread.add(module)
        self._load(module)
        for place in range(len(self._body(module))):
            self._choose(module, place)
