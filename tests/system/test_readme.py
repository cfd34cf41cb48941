"""Every command of README.md and docs/, and every shipped experiment and sweep, in a shortened form in one folder.

Commands are found in the documents themselves. Each is shortened as `way` implies by its program and verb, or as
commands.txt says, or where it has to stop on a machine without the world that it needs. One that stands in several
documents is run once. A block of YAML or Python whose first line is a comment with a file's name is that file; a
document's other blocks of Python are one program.
"""

import ast
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

from lightning_tfm.cli.main import main
from lightning_tfm.data.wmt import download
from lightning_tfm.study.sweeps import is_search, read_sweep
from lightning_tfm.yaml_files import read_yaml, shipped_folder
from tests.documents.test_mentions import (
    check_make,  # noqa: F401  commands.txt names it
    check_mentioned,
    check_parsed,
)
from tests.helpers.calling import Call
from tests.helpers.documents import DOCUMENTS, ROOT, blocks, commands, load
from tests.helpers.tables import read_tables
from tests.helpers.tiny import WORDS, write_corpus, write_lines

REAL_TEXT = os.environ.get("LIGHTNING_TFM_DATA")


@dataclass(frozen=True)
class Run:
    """It comes to its end with `more` appended."""

    more: str = ""


@dataclass(frozen=True)
class Stops:
    """It needs what is not here (`why`), and must come as far as the message `at`."""

    at: str
    why: str
    more: str = ""


@dataclass(frozen=True)
class Parsed:
    """It would need what is not here (`why`): its options are read and its files found, and nothing is run."""

    why: str


@dataclass(frozen=True)
class Foreign:
    """Another program's: its arguments are checked by the function of this file."""

    check: str


GENERATED = load("generated")
NO_HOST = "127.0.0.1:1/DB?connect_timeout=1"
KINDS = {"sh", "python", "yaml", "text", "", "{toctree}", "{include}", "{literalinclude}"}
"""languages of blocks; all but sh, python and yaml are shown, not run"""


TABLES = read_tables(ROOT / "tests/system/commands.txt")
OPTIONS: dict[str, str] = {}
for name, words in TABLES["options"]:
    OPTIONS[name] = words.format_map(OPTIONS)
TABLES = {part: [[cell.format_map(OPTIONS) for cell in line] for line in lines] for part, lines in TABLES.items()}
SHORT, SEARCH, HERE = (OPTIONS[name] for name in ("SHORT", "SEARCH", "HERE"))
HOW = {"run": Run, "stops": Stops, "parsed": Parsed}
COMMANDS = {line: HOW[how](*more) if how in HOW else Foreign(how) for line, how, *more in TABLES["commands"]}
FOREIGN, MADE_BY, EXPERIMENTS, ROWS, SWEEPS = (
    {name: words for name, words in TABLES[part]} for part in ("programs", "before", "experiments", "rows", "sweeps")
)
FAST = {" | ".join(line) for line in TABLES["fast"]}
SNIPPETS = {
    document: [more for name, *more in TABLES["python"] if name == document and more]
    for document, *_ in TABLES["python"]
}


def way(line: str) -> Run | Stops | Parsed | Foreign:
    """How a command is run: as COMMANDS says, or as its program and its verb imply."""
    if line in COMMANDS:
        return COMMANDS[line]
    for begin, function in FOREIGN.items():
        if line.startswith(begin):
            return Foreign(function)
    verb = line.split(" | ")[-1].split()[1]
    if "--trainer.accelerator gpu" in line:
        return Parsed("a GPU")
    if verb == "data":
        return Run("--data.vocab_size 44 --data.max_len 60")
    return Run(SHORT if verb in ("fit", "sweep", "plan") and "--print_config" not in line else "")


def before(line: str) -> list[str]:
    """The commands that make what it reads."""
    if "--out published" in line:
        unpacking = [other for other in COMMANDS_OF_DOCUMENTS if " unpack " in other and "--out published" in other]
        return [] if line in unpacking else unpacking
    return [MADE_BY[word] for word in line.split() if word in MADE_BY and MADE_BY[word] != line]


COMMANDS_OF_DOCUMENTS = list(dict.fromkeys(line for text in DOCUMENTS.values() for line in commands(text)))
WAYS = {line: way(line) for line in COMMANDS_OF_DOCUMENTS}
FILE = re.compile(r"# ([\w./-]+\.(?:yaml|py|sh))\n")


def files() -> dict[str, str]:
    """Name and content of the files that documents show; one that two of them show is the same in both."""
    found: dict[str, str] = {}
    for document, text in DOCUMENTS.items():
        for language, content in blocks(text):
            if language in ("yaml", "python") and (name := FILE.match(content)):
                assert found.setdefault(name[1], content) == content, f"{document}: another {name[1]}"
    return found


def programs() -> dict[str, str]:
    """document -> its blocks of Python, files left out."""
    found = {
        name: [content for language, content in blocks(text) if language == "python" and not FILE.match(content)]
        for name, text in DOCUMENTS.items()
    }
    found["docs/howto/notebook.ipynb"] = list(cells(ROOT / "docs/howto/notebook.ipynb"))
    found["docs/attention_heads.py"] = [(ROOT / "docs/attention_heads.py").read_text(encoding="utf-8")]
    return {name: "".join(parts) for name, parts in found.items() if parts}


def cells(notebook: Path) -> Iterator[str]:
    """What a notebook runs: a command as a call, and the value that a cell shows printed."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        if source.startswith("!lightning-tfm "):
            line = source.removeprefix("!lightning-tfm ")
            yield f"from lightning_tfm.cli.main import main\nassert main({line!r}.split()) == 0\n"
            continue
        *before, last = ast.parse(source).body
        yield "\n".join(
            [
                *map(ast.unparse, before),
                f"print({ast.unparse(last)})" if isinstance(last, ast.Expr) else ast.unparse(last),
                "",
            ]
        )


def test_what_is_listed_stands_in_a_document_and_every_block_is_run():
    assert not {*COMMANDS, *FAST, *MADE_BY.values()} - WAYS.keys(), "no document has them any more"
    assert len(COMMANDS) == len(TABLES["commands"]), "a command twice"
    for name, text in DOCUMENTS.items():
        assert {language for language, _ in blocks(text)} <= KINDS, f"{name}: a block that nobody runs"
        shown = [content for language, content in blocks(text) if language in ("", "text")]
        assert not [line for content in shown for line in content.splitlines() if line.startswith("lightning-tfm ")]
    assert commands("```sh\nmake table3  # as ever\nlightning-tfm new # one\n```\n") == [
        "make table3",
        "lightning-tfm new",
    ]


def test_every_shipped_file_is_listed():
    experiments = {path.stem for path in shipped_folder("experiments").glob("*.yaml")}
    assert experiments == EXPERIMENTS.keys() | ROWS.keys()
    sweeps = {path.stem for path in shipped_folder("sweeps").glob("*.yaml") if not path.name.endswith(".study.yaml")}
    assert sweeps == SWEEPS.keys() >= set(ROWS.values())


# --- running them ---


class Place:
    """A working directory with small texts under the names that the files ask for, and one results folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        write_corpus(folder / "data" / "tiny", longest=5)  # half of an untrained model's run is decoding
        write_lines(folder / "data" / "tiny")
        tiny = folder / "data" / "tiny"
        for language in ("en", "de"):
            for name in ("test_2016_flickr", "newstest2013", "newstest2014"):
                (tiny / f"{name}.{language}").write_bytes((tiny / f"test.{language}").read_bytes())
        (tiny / "pieces.en").write_text("".join(f"{word}\n{word.upper()}\n" for word in WORDS))
        for path in list(tiny.glob("*.de")):
            path.with_suffix(".fr").write_bytes(path.read_bytes())
        for name in ("multi30k", "wmt-news", "tatoeba-en-de", "manpages-en-fr"):
            (folder / "data" / name).symlink_to("tiny")
        (folder / "sweeps").mkdir()
        sweep = yaml.safe_load((shipped_folder("sweeps") / "table3.yaml").read_text())
        sweep["parameters"]["row"]["values"] = ["base", "A-h1", "E-learned"]
        (folder / "sweeps" / "table3.yaml").write_text(yaml.safe_dump(sweep))
        options = iter(SHORT.split())
        short: dict[str, dict[str, object]] = {}
        for section, name in (option.removeprefix("--").split(".") for option in options):
            short.setdefault(section, {})[name] = yaml.safe_load(next(options))
        (folder / "short.yaml").write_text(yaml.safe_dump(short))
        demo = yaml.safe_load((shipped_folder("experiments") / "demo.yaml").read_text())  # it takes no options
        demo["data"] |= {"pairs": 300, "vocab_size": 300}
        demo["training"]["warmup"] = 2
        demo["miniature"] |= {"width": 16, "steps": 25000}
        (folder / "experiments").mkdir()
        (folder / "experiments" / "results").symlink_to(ROOT / "experiments" / "results")  # of a clone
        (folder / "experiments" / "demo.yaml").write_text(yaml.safe_dump(demo))
        for name, content in files().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        (folder / "examples").symlink_to(ROOT / "examples")
        runs = [(row, s, a + s / 100) for row, a in (("base", 0.5), ("dropout", 0.7)) for s in range(1, 6)]
        totals = [f"{row},{s},{a}" for row, s, a in runs]
        (folder / "scores.csv").write_text("\n".join(["row,seed,test_acc", *totals]))
        items = [f"{row},{s},{i},{int(i < 100 * a)}" for row, s, a in runs for i in range(100)]
        (folder / "items.csv").write_text("\n".join(["row,seed,item,value", *items]))
        self.run_before: set[str] = set()
        code, said = self.run(f"lightning-tfm sweep sweeps/table3.yaml {SHORT}")
        assert code == 0, said

    def filled(self, text: str) -> str:
        """RUN is base's run at seed 61, FOLDER that of the small text, HOST one that does not answer."""
        if "RUN" in text:
            cell = json.loads((self.folder / "results/studies/table3/cells/base/61.json").read_bytes())
            text = text.replace("RUN", cell["training_hash"][:16])
        return text.replace("HOST/DB", NO_HOST).replace("FOLDER", "data/tiny")

    def run(self, line: str) -> tuple[int, str]:
        """Exit code and all output."""
        first, *rest = self.filled(line).split(" | ")
        given = subprocess.run(shlex.split(first), capture_output=True, text=True).stdout if rest else ""
        program, *argv = shlex.split(rest[0] if rest else first)
        assert program == "lightning-tfm", line
        return called(lambda: main(argv), self.folder, given)


def called(action: Callable[[], object], folder: Path, given: str = "") -> tuple[int, str]:
    """Exit code and all output of an action that has no network and no other program."""

    def alone() -> object:
        os.environ |= {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "PATH": ""}
        download.PAUSE = 0.0
        return action()

    said = Call(alone, given, folder).wait(900)
    return said.code, said.out + said.err


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    return Place(tmp_path_factory.mktemp("readme"))


def check(line: str, how: Run | Stops | Parsed | Foreign, place: Place) -> None:
    if isinstance(how, Foreign):
        globals()[how.check](line, place)
        return
    if isinstance(how, Parsed):
        check_mentioned(line)
        check_parsed(line)
        return
    for other in before(line) if isinstance(how, Run) else ():
        if other not in place.run_before:
            check(other, WAYS[other], place)
    code, said = place.run(f"{line} {how.more}")
    place.run_before.add(line)
    if isinstance(how, Run):
        assert code == 0, said
    else:
        assert code == 2 and how.at in said, f"not as far as '{how.at}' ({how.why} is not here): {said}"


def check_replay(line: str, place: Place) -> None:
    """In an interpreter of its own: what other tests left of W&B in this one, a fork inherits."""
    command = [sys.executable, "-m", "lightning_tfm.cli.main", *shlex.split(line)[1:], "--mode", "offline"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=place.folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def quick(line: str, how: Run | Stops | Parsed | Foreign) -> bool:
    """What runs to its end is long, but for FAST and judge."""
    if isinstance(how, Foreign):
        return how.check not in ("check_replay", "check_pytest", "check_example")
    return line in FAST or " judge " in line or not isinstance(how, Run)


LONG_MARKS = (pytest.mark.long, pytest.mark.timeout(900))


@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=() if quick(line, how) else LONG_MARKS, id=line) for line, how in WAYS.items()]
)
def test_command(line, place):
    check(line, WAYS[line], place)


@pytest.mark.parametrize("line", [line for line, how in WAYS.items() if isinstance(how, Run)])
def test_command_is_understood(line):
    check_mentioned(line.split(" | ")[-1])


def of_experiment(name: str) -> str:
    return f"lightning-tfm fit --config experiments/{name}.yaml"


def of_sweep(name: str) -> str:
    path = shipped_folder("sweeps") / f"{name}.yaml"
    return f"lightning-tfm {'tune' if is_search(read_yaml(path)) else 'sweep'} {path}"


SHIPPED = [(of_experiment(name), more) for name, more in EXPERIMENTS.items()]
SHIPPED += [(of_sweep(name), more) for name, more in SWEEPS.items()]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("line", "more"), SHIPPED, ids=[line.rpartition("/")[2] for line, _ in SHIPPED])
def test_shipped_file_runs(line, more, place):
    code, said = place.run(f"{line} {more}")
    assert code == 0, said


BY_RATIOS = {"ladder"}
"""the longest text that ratios derive is made to be counted; experiments/ratios.yaml has the shortest"""


@pytest.mark.parametrize("line", [*map(of_experiment, EXPERIMENTS), *map(of_sweep, sorted(SWEEPS.keys() - BY_RATIOS))])
def test_shipped_file_is_read(line):
    check_parsed(line)


def test_every_program_is_listed():
    assert programs().keys() == SNIPPETS.keys()


WHOLE = [pytest.param("docs/howto/python.md", (), id="docs/howto/python.md-whole")]


@pytest.mark.long
@pytest.mark.parametrize(("document", "shorter"), [*SNIPPETS.items(), *WHOLE])
def test_python(document, shorter, place):
    code = programs()[document]
    for word, other in shorter:
        assert word in code, f"{document} has no {word} any more"
        code = code.replace(word, other)
    code = place.filled(code)
    ended, said = called(lambda: exec(code, {"__name__": "__main__"}), place.folder)
    assert not ended, said


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not REAL_TEXT, reason="LIGHTNING_TFM_DATA is unset: the folder of real parallel text")
def test_the_walk_through_attention_on_its_own_text(place):
    """A run of 20 steps: its heads do nothing, but what the page counts is the text's, and its pictures are drawn."""
    page, text = DOCUMENTS["docs/attention.md"], f"{REAL_TEXT}/multi30k"
    short = f"--miniature.steps 5000 --training.warmup 2 {SEARCH} {HERE}"
    (walk,) = [line for line in commands(page) if line.startswith("lightning-tfm fit ")]
    code, said = place.run(f"{walk.replace('FOLDER', text)} {short}")
    assert code == 0, said
    heads = programs()["docs/attention_heads.py"].replace("sys.argv[1]", '"RUN"')
    program = (programs()["docs/attention.md"] + heads).replace("RUN", re.findall(r"results/runs/\w+", said)[-1])
    code, said = called(lambda: exec(program, {"__name__": "__main__"}), place.folder)
    assert code == 0, said
    counted = re.findall(r"^(.*\S) +layer \d, head \d: [\d.]+ of (\d+), test [\d.]+ of (\d+)", said, re.MULTILINE)
    nouns = {(ours, test) for job, ours, test in counted if job == "read the noun's gender"}
    assert nouns == set(re.findall(r"(\d+) nouns of the dev text, (\d+) of the test text", page))
    assert len(counted) == len(re.findall(r" \| \d, \d \| ", page)), "a job without its line in the table"
    drawn = {picture for picture in re.findall(r"_static/attention/(\w+\.svg)", page) if picture != "positions.svg"}
    assert drawn and all((place.folder / picture).is_file() for picture in drawn)
    files = [gzip.decompress(file.read_bytes()).decode() for file in Path(text).glob("*.gz")]
    lines = {line.strip(" .") for whole in files for line in whole.split("\n")}
    ours = {found.strip(".") for found in re.findall(r"\b(?:A woman|Eine Frau) [^*\"]+", page)}
    assert len(lines) > 60000 and len(ours) == 2 and not lines & ours, "a sentence of a text that is not ours"


def test_every_file_of_a_results_folder_is_in_the_reference(place):
    """Of those that the tests above have left; journals and folders in the making apart."""
    found = {path.relative_to(place.folder / "results") for path in (place.folder / "results").rglob("*")}
    files = sorted(str(path) for path in found if (place.folder / "results" / path).is_file())
    assert len(files) > 30 and not [name for name in files if not GENERATED.described(name)]


def test_every_key_of_a_storage_is_in_the_reference(place):
    """Of the journals that the tests above have left."""
    found: set[str] = set()
    for journal in place.folder.glob("results/studies/*/journal.log"):
        for line in journal.read_text().splitlines():
            operation = json.loads(line)
            found |= operation.get("user_attr", {}).keys() | operation.get("user_attrs", {}).keys()
    assert {"row", "owner", "definition"} <= found <= GENERATED.TRIAL.keys() | GENERATED.NOTES.keys()


# --- other programs ---


def check_wheel(line: str, place: Place) -> None:
    """The wheel is named as this version's is (that it works: tests/test_package.py)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert shlex.split(line)[-1] == f"dist/{project['name']}-{project['version']}-py3-none-any.whl"


def check_benchmark(line: str, place: Place) -> None:
    """Its help names the game and the options."""
    words = shlex.split(line)
    command = [sys.executable, *words[1:4], "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(word in done.stdout for word in words[3:] if word.startswith("--")), done.stdout


def check_wandb(line: str, place: Place) -> None:
    """W&B's program is installed, and a file that it is given is one that we read, too."""
    words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=.*", word)]
    assert [e.name for e in entry_points(group="console_scripts", name=words[0])] == ["wandb"]
    if words[1] == "sweep":
        read_sweep(words[2])
    else:
        assert words[1:] == ["agent", "SWEEP"]


def check_pytest(line: str, place: Place) -> None:
    """In an interpreter of its own: pytest rewrites modules."""
    words = [sys.executable, *shlex.split(line)[1:], "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=place.folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


def check_example(line: str, place: Place) -> None:
    """A model that is not ours, from its training to a verdict, in small."""
    words = [sys.executable, *shlex.split(line)[1:], "--seeds", "2", "--epochs", "1", "--lines", "60"]
    (folder := place.folder / "own").mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*words, "--folder", "own"], cwd=place.folder, env=environment, capture_output=True, check=True)
    code, said = place.run("lightning-tfm judge own/scores.csv --metric test_acc:higher:0.005 --items own/items.csv")
    assert code == 0 and said.count("3 more seeds") >= 4 and (folder / "items.csv").is_file(), said


def check_file(line: str, place: Place) -> None:
    assert (place.folder / shlex.split(line)[-1]).is_file(), line


def check_torchrun(line: str, place: Place) -> None:
    from torch.distributed.run import get_args_parser

    words = shlex.split(line.replace("-rank N", "-rank 1"))
    found = get_args_parser().parse_args(words[1:])
    assert found.module and found.training_script == "lightning_tfm.cli.main"
    check_parsed(shlex.join(["lightning-tfm", *found.training_script_args]))


# --- and mistakes are seen ---


MISTAKES = [
    ("lightning-tfm table --parms", Run(), "unknown option '--parms'"),
    ("lightning-tfm fit --config experiments/mini.yaml", Run(), "no such file"),
    ("lightning-tfm sweep sweeps/table4.yaml --storage postgresql://x", Stops("cannot be reached", ""), "no such file"),
    ("lightning-tfm work table3 --storag x", Stops("cannot be reached", ""), "unknown option '--storag'"),
    ("make table4", Foreign("check_make"), "non-zero exit status"),
    ("optuna-dashboard results/studies/table4/journal.log", Foreign("check_file"), "table4"),
    ("torchrun --nnodes 2 -m lightning_tfm.cli.main fit --mod 3", Foreign("check_torchrun"), "unknown option '--mod'"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "how", "words"), MISTAKES)
def test_a_mistake_is_seen(line, how, words, place):
    with pytest.raises((AssertionError, subprocess.CalledProcessError), match=words):
        check(line, how, place)
