"""What imports what."""

import ast
import io
import itertools
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import lightning_tfm

PACKAGE = Path(lightning_tfm.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_files" not in path.parts)
NAMES = {path.relative_to(PACKAGE).as_posix() for path in FILES}


def read(text: str) -> dict[str, set[str]]:
    """`name: words`, which go on in the lines below that are indented."""
    lines = re.sub(r"\n  +", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines()
    return {name: {*words.split()} for name, words in (line.split(":") for line in lines)}


OURS, FOREIGN, AT_THE_TOP = map(read, re.split(r"# --- .* ---\n", Path(__file__).with_name("imports.txt").read_text()))
MAY = {name: words | (OURS["BASE"] if "BASE" in words else set()) for name, words in OURS.items()}
"""room or file -> rooms and files of ours that it may import"""


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names of all imports, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_the_top(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imports(node)


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text(encoding="utf-8"))


def room(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def test_imports_go_one_way():
    assert {room(name) for name in NAMES} - {"__init__"} <= MAY.keys(), "a new room: say in MAY what it may import"
    assert [wrong for name in sorted(NAMES) if name != "__init__.py" for wrong in wrong_ways(name)] == []


def test_the_statistics_stand_alone():
    """They take arrays: of the package they know errors, and each other."""
    of = [name for name in NAMES if name.startswith("report/stats/")]
    ours = {(name, t) for name in of for t in imports(tree(name)) if t.startswith("lightning_tfm.")}
    allowed = ("lightning_tfm.report.stats", "lightning_tfm.errors")
    assert len(of) > 4 and {(name, t) for name, t in ours if not t.startswith(allowed)} == set()


def wrong_ways(name: str) -> Iterator[str]:
    own = room(name)
    for target in imports(tree(name)):
        first, _, rest = target.partition(".")
        if first == "lightning_tfm" and rest:
            there = rest.split(".")[0]
            named = [x for x in MAY[own] if "." in x and f"{rest}.".startswith(f"{x}.")]
            if not (there == own or there in MAY[own] or named):
                yield f"{name}: {target}"
        elif own not in FOREIGN.get(first, {own}):
            yield f"{name}: {first} is imported only in {sorted(FOREIGN[first])}"


def test_what_must_start_fast_does_without_torch_scipy_stats_and_what_needs_no_queue_without_optuna():
    for packages, files in AT_THE_TOP.items():
        assert {name: found for name in files if (found := [*reached(name, (*packages.split(),))])} == {}


def reached(name: str, foreign: tuple[str, ...]) -> Iterator[str]:
    """Our modules through which `name` imports one of `foreign`, as far as they are imported at the top."""
    todo, seen = [name], set()
    while todo:
        here = todo.pop()
        seen.add(here)
        for target in at_the_top(tree(here)):
            if f"{target}.".startswith(tuple(f"{one}." for one in foreign)):
                yield here
            path = target.removeprefix("lightning_tfm.").replace(".", "/")
            todo += [f for f in (f"{path}.py", f"{path}/__init__.py") if f in NAMES and f not in seen]


# --- what nobody uses ---

ROOT = PACKAGE.parent
STAND_INS = {"TextSet", "LongText"}
"""classes with the methods of another one (Prepared), whose parameters are not theirs to choose"""
ROOMS = sorted(name for name in NAMES if room(name) != "report")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def ours(tree: ast.Module) -> Iterator[Function]:
    """Functions whose parameters we choose: those of a module, and methods of classes that derive from nothing."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node
        elif isinstance(node, ast.ClassDef) and not node.bases and node.name not in STAND_INS:
            yield from (inner for inner in node.body if isinstance(inner, Function))


def defined(tree: ast.Module) -> Iterator[str]:
    """What a module defines for others: functions, methods, classes, constants."""
    yield from (function.name for function in ours(tree) if not function.name.startswith("__"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def unread(function: Function) -> set[str]:
    """Parameters that the body does not mention; none of a function that does nothing, handles a signal, or waits to be
    overridden: it says a constant."""
    arguments = function.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} - {"self", "cls"}
    if names == {"number", "frame"} or all(map(_says_nothing, function.body)):
        return set()
    nodes = (node for statement in function.body for node in ast.walk(statement))
    return names - {node.id for node in nodes if isinstance(node, ast.Name)}


def _says_nothing(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr | ast.Return) else None
    return isinstance(statement, ast.Pass) or isinstance(value, ast.Constant)


def test_nothing_is_defined_that_nobody_uses():
    """In what runs and in what tells people to run it: tests do not keep a name alive. pytest calls the checks of
    lightning_tfm.testing, Python reads `__all__`, a notebook `_repr_svg_`."""
    where = [*PACKAGE.rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), ROOT / "README.md"]
    words = Counter(word for path in where for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))
    unused = {(name, word) for name in ROOMS for word in defined(tree(name)) if words[word] < 2}
    assert {(name, word) for name, word in unused if not word.startswith(("test_", "__", "_repr_"))} == set()


def test_no_parameter_is_taken_that_nobody_reads():
    found = {(name, function.name): unread(function) for name in ROOMS for function in ours(tree(name))}
    assert {function: names for function, names in found.items() if names} == {}


# --- what is kept out ---


def named(node: ast.AST, name: str) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == name) or (isinstance(node, ast.Name) and node.id == name)


def offences(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "sync_dist" and not is_constant(node.value, False):
            yield "sync_dist: means of means; reduce sums and counts yourself (training/module.py)"
        if (
            isinstance(node, ast.keyword)
            and node.arg == "use_distributed_sampler"
            and not is_constant(node.value, False)
        ):
            yield "use_distributed_sampler must be False: the plan deals the sentences"
        if isinstance(node, ast.keyword) and node.arg == "accumulate_grad_batches":
            yield "accumulate_grad_batches: Lightning divides a short last window wrongly"
        if named(node, "estimated_stepping_batches"):
            yield "estimated_stepping_batches: makes a resumed loader repeat its batches"
        if isinstance(node, ast.Call) and named(node.func, "Trainer"):
            if not any(k.arg == "use_distributed_sampler" for k in node.keywords):
                yield "a Trainer without use_distributed_sampler=False"
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield "a bare except"
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            if not any(k.arg == "weights_only" and is_constant(k.value, True) for k in node.keywords):
                yield "torch.load without weights_only=True"


def is_constant(node: ast.AST, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def test_no_call_that_is_known_to_break_exactness():
    assert {name: found for name in NAMES if (found := [*offences(tree(name))])} == {}


@pytest.mark.parametrize(
    "source",
    [
        "self.log('x', 1, sync_dist=True)",
        "trainer.estimated_stepping_batches",
        "Trainer(max_steps=3)",
        "pl.Trainer(use_distributed_sampler=True)",
        "pl.Trainer(use_distributed_sampler=flag)",
        "Trainer(use_distributed_sampler=False, accumulate_grad_batches=4)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "try:\n    pass\nexcept:\n    pass",
    ],
)
def test_the_check_sees_each_of_them(source):
    assert list(offences(ast.parse(source)))


def imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Files of ours that a file imports, inside functions too, but for the sake of types."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lightning_tfm"):
            folder = (node.module or "").removeprefix("lightning_tfm").lstrip(".").replace(".", "/")
            names = [f"{folder}/{alias.name}.py".lstrip("/") for alias in node.names]
            yield from {name if name in known else f"{folder}.py" for name in names} & known
        yield from imported(node, known)


def test_no_imports_go_in_a_circle_those_inside_functions_included():
    graph = {name: {other for other in imported(tree(name), NAMES) if other != name} for name in NAMES}
    assert sum(map(len, graph.values())) > 900, "they are seen"
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|yaml|json|txt)|(?:[\w.-]+/)+)(?::(\w+))?`", PAGE)))


def located(path: str) -> Path | None:
    return next((root / path for root in (PACKAGE, ROOT) if (root / path).exists()), None)


def symbols(path: Path) -> set[str]:
    """What a module defines at its top."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_page_names_enough_to_be_checked():
    assert len(NAMED) > 60 and sum(bool(symbol) for _, symbol in NAMED) > 35
    assert len(PAGE.splitlines()) <= 120


@pytest.mark.parametrize(("path", "symbol"), NAMED, ids=[":".join(pair) for pair in NAMED])
def test_what_the_page_names_exists(path, symbol):
    if path in ("result.json", "study.json"):  # files of a results folder
        return
    found = located(path)
    assert found is not None, f"there is no {path}"
    assert not symbol or symbol in symbols(found), f"{path} has no {symbol}"


def prose(path: Path) -> Iterator[str]:
    """The docstrings and comments of a file, those below fields too."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    yield from (t.string for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT)


TOPS = ("lightning_tfm", "tests", "benchmarks", "experiments", "docs")
ALL = [path for top in TOPS for path in (ROOT / top).rglob("*.py")]
OTHERS = {"mine.py", "tokenizer.perl", "module.Class", "lightning_tfm/inference/syntax.py"}
"""a user's, another project's, and one of an earlier commit"""


@pytest.mark.parametrize("top", TOPS)
def test_what_a_docstring_or_a_comment_names_exists(top):
    """Files, and what is in one of the package: `run_state.Runs`."""
    sources: dict[str, str] = {}
    for path in FILES:
        for name in {path.stem, path.parent.name} - {"lightning_tfm"}:
            sources[name] = sources.get(name, "") + path.read_text(encoding="utf-8")
    there, missing, named = [f"/{path.relative_to(ROOT)}" for path in ALL], set(), 0
    for text in (text for path in ALL if path.is_relative_to(ROOT / top) for text in prose(path)):
        files = re.findall(r"(?<![\w/.-])[\w/]*\w\.py\b", text)
        missing |= {file for file in files if not any(name.endswith(f"/{file}") for name in there)}
        dotted = re.findall(r"(?<![\w/.`-])([a-z]\w+)\.(?!py|csv|md|json|svg|txt|html)([A-Za-z]\w+)\b(?!\.\w)", text)
        symbols = [(file, symbol) for file, symbol in dotted if file in sources]
        missing |= {f"{file}.{s}" for file, s in symbols if not re.search(rf"\b{s}\b", sources[file])}
        named += len(files) + len(symbols)
    assert missing <= OTHERS and named > 1


@pytest.mark.parametrize("room", ["data", "queue", "report", "runs", "study"])
def test_a_large_room_says_which_file_is_of_which_theme(room):
    folder = PACKAGE / room
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    listed = "\n".join(line[21:] for line in said.splitlines()[2:])
    assert files == set(re.findall(r"\b[a-z]+[a-z_0-9]*\b", listed))


def test_no_folder_holds_more_than_twenty_files_lying_flat():
    """In the package and in its tests."""
    for top in (PACKAGE, ROOT / "tests"):
        flat = Counter(path.parent for path in top.rglob("*.py") if path.name != "__init__.py")
        assert not {str(folder): count for folder, count in flat.items() if count > 20}


def test_the_road_from_the_command_to_the_model_has_six_files_and_each_names_the_next():
    found = re.search(r"from the command to the model:\n(.*?)\n\n", PAGE, re.DOTALL)
    assert found is not None
    road = re.findall(r"`([\w/]+)\.py:(\w+)`", found.group(1))
    assert len(road) <= 6 and road[0][0].startswith("cli/") and road[-1] == ("model/transformer", "Transformer")
    for (here, _), (there, symbol) in itertools.pairwise(road):
        source = (PACKAGE / f"{here}.py").read_text(encoding="utf-8")
        tree = ast.parse(source)
        module = f"lightning_tfm.{there.replace('/', '.')}"
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == module]
        assert any(alias.name == symbol for node in imports for alias in node.names), f"{here} does not import {symbol}"
        assert len(re.findall(rf"\b{symbol}\b", source)) > 1, f"{here} does not use {symbol}"


MODULES = sorted(path for path in (PACKAGE).rglob("*.py") if not {"model", "kernels"} & {*path.parts})


def test_no_function_outside_the_model_takes_more_than_eight_parameters():
    counts = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                counts[f"{path.name}:{node.name}"] = len([name for name in names if name not in ("self", "cls")])
    assert len(counts) > 900 and {name: count for name, count in counts.items() if count > 8} == {}


def test_what_is_signed_never_has_the_sign_of_a_zero():
    """A difference that rounds to nothing is +0.0: plural_words.signed, which writes signs, has a format with a z."""
    texts = {path: path.read_text(encoding="utf-8") for kind in ("*.py", "*.html") for path in PACKAGE.rglob(kind)}
    written = [(path.name, one) for path, text in texts.items() for one in re.findall(r"[:\"]\+z?\.", text)]
    assert ("plural_words.py", '"+z.') in written and [name for name, one in written if "z" not in one] == []
    assert sum("signed(" in text for text in texts.values()) > 5
