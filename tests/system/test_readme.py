"""Every command of README.md and docs/, and every shipped experiment and sweep, in a shortened form in one folder.

Commands are found in the documents themselves. Each is shortened as `way` implies by its program and verb, or as
`COMMANDS` says, or where it has to stop on a machine without the world that it needs. One that stands in several
documents is run once. A block of YAML or Python whose first line is a comment with a file's name is that file; a
document's other blocks of Python are one program.
"""

import ast
import contextlib
import gzip
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

from lightning_tfm.cli.main import VERBS, main
from lightning_tfm.data.wmt import download
from lightning_tfm.errors import UserError
from lightning_tfm.study.sweeps import is_search, read_sweep
from lightning_tfm.yaml_files import FOLDERS, find_file, read_yaml, shipped_folder
from tests.helpers.calling import Call
from tests.helpers.documents import load
from tests.helpers.tiny import WORDS, write_corpus, write_lines

ROOT = Path(__file__).parents[2]
WRITTEN_BY_HAND = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path.parent.name not in ("also", "preregistration")
    and (path.parent.name != "reference" or path.name == "index.md")
]
AT_THE_TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in [*AT_THE_TOP, *WRITTEN_BY_HAND]
}
"""what people wrote today; pre-registrations keep the words of their day, and what docs/generated.py writes is
tests/documents/test_documents.py's"""
REAL_TEXT = os.environ.get("LIGHTNING_TFM_DATA")
TEXT = "--data.corpus files --data.folder data/tiny --data.vocab_size 44 --data.train train --data.max_len 60"
SIZES = "--miniature.width 16 --miniature.depth 2 --miniature.steps 50000 --training.warmup 2 --training.tokens 260"
SEARCH = "--evaluation.beam 1 --evaluation.extra_len 4"  # untrained models do not end their sentences
HERE = "--trainer.accelerator cpu --trainer.threads 1"
SHORT = f"{TEXT} --data.dev val --data.test test {SIZES} {SEARCH} {HERE}"
WARM = "--miniature.depth 6 --training.steps 75000 --miniature.steps 250 --training.tokens 130"
"""300 steps: as many as the longest warm-up of sweeps/norm.yaml"""
FULL = f"{TEXT} {SIZES} {SEARCH} {HERE} --training.average_last 2 --training.average_every 1"
"""for experiments at full size, whose dev and test sets keep their names"""
BIG = f"{FULL} --training.average_last 1 --training.average_every 5 --miniature.steps 25000"
"""its row keeps four times as many snapshots, at two fifths of the distance"""


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
WALK = "lightning-tfm fit --config experiments/miniature-multi30k.yaml --data.folder FOLDER --data.share 1 --seed 1"
NO_HOST = "127.0.0.1:1/DB?connect_timeout=1"
SMALL = "--training.steps 2 --training.warmup 2 --training.tokens 260 --data.pairs 90 --data.vocab_size 150"
TREES = f"{SEARCH} {HERE} {SMALL}"
ALONE = f"{SIZES} {HERE} --data.pairs 300 --data.vocab_size 200 --data.max_words 12"
LINES = f"{SIZES} {HERE} --data.vocab_size 44 --data.max_words 12"
LONG = "--data.long val --data.long_from 8"
SHARED = f"{SIZES} {SEARCH} {HERE} --data.vocab_size 44 --data.share 1"
MADE_UP = f"{SIZES} {SEARCH} {HERE} --data.pairs 300 --data.vocab_size 300"
SCAN = f"{SHORT} --data.source en --data.target de --training.steps 100000 --training.warmup 1"
FEW = f"{SEARCH} {HERE} --data.vocab_size 44 --miniature.width 8 --miniature.depth 3 --miniature.steps 2000 "
FEW += "--training.warmup 2"
TABLE3 = "lightning-tfm sweep sweeps/table3.yaml"
MINIATURE = "lightning-tfm fit --config experiments/miniature.yaml"
LM = "lightning-tfm fit --config experiments/language-model.yaml"
OF_LINES = "lightning-tfm sweep sweeps/language-model.yaml"
FAR = "lightning-tfm sweep sweeps/extrapolation.yaml"
MINE = "lightning-tfm sweep my-sweep.yaml"
JUDGED = "lightning-tfm judge examples/speedrun/varlen.csv --metric val_loss:lower"
COMMANDS: dict[str, Run | Stops | Parsed | Foreign] = {
    "lightning-tfm wandb replay table3": Foreign("check_replay"),
    f"{MINIATURE} --data.corpus files --data.folder FOLDER --data.source en --data.target de --data.dev val "
    "--data.test test": Run(f"{SIZES} {SEARCH} {HERE} --data.vocab_size 44"),
    f"{TABLE3} --name careful --seeds auto --max-seeds 8": Run(f"{SHORT} --first-seeds 2 --max-seeds 2"),
    f"{TABLE3} --name multi30k --config experiments/miniature-multi30k.yaml": Run(SHARED),
    f"{TABLE3} --launcher none --workers 2": Run(f"{SHORT} --name queued"),
    "lightning-tfm dashboard": Stops("a port is between", "someone to end it with Ctrl-C", "--port 70000"),
    "lightning-tfm sweep sweeps/modern.yaml --tune training.lr_factor=0.35,0.7,1.4 --tune-seeds 1001": Parsed(
        "176 runs"
    ),
    "lightning-tfm sweep sweeps/heads-tuned.yaml --tune training.lr_factor=0.35,0.7,1.4 --tune-seeds 1001,1002": Parsed(
        "55 runs"
    ),
    "lightning-tfm tune sweeps/search.yaml": Run(f"{SHORT} --miniature.steps 1000 --training.tokens 130 --trials 2"),
    f"{TABLE3} --storage postgresql+psycopg://HOST/DB": Stops(
        "cannot be reached", "a PostgreSQL host", f"{SHORT} --name elsewhere"
    ),
    "lightning-tfm work table3 --storage postgresql+psycopg://HOST/DB --no-shared-files --out mine": Stops(
        "cannot be reached", "a PostgreSQL host"
    ),
    f"{TABLE3} --launcher slurm --slurm.jobs 4 --slurm.minutes 240": Stops(
        "no sbatch on this machine", "a SLURM cluster", f"{SHORT} --name submitted"
    ),
    "lightning-tfm export scan-length --to csv": Stops("'scan-length' is not a study", "the study"),
    "lightning-tfm judge results/studies/scan-length/csv/runs.csv --metric dev/exact:higher --figures FOLDER": Stops(
        "there is no such file", "the study"
    ),
    "lightning-tfm plan sweeps/table3.yaml --name ratios --miniature.width 16 --miniature.hold ratios "
    "--training.tokens 600 --data.vocab_size 1000": Run("--data.vocab_size 120"),
    "lightning-tfm layers --figure layers.svg": Run("--d_model 16 --longest 128 --layer attention"),
    "lightning-tfm layers --study table3": Run("--d_model 16 --longest 128 --layer attention"),
    f"lightning-tfm draw{MINIATURE.removeprefix('lightning-tfm fit')} --row A-h1": Run("--to -"),
    WALK: Run(f"{SIZES} {SEARCH} {HERE} --data.vocab_size 44"),
    "lightning-tfm inspect table3": Run("--lines 2 --beams 1,2 --threads 1"),
    "lightning-tfm data prepare wmt14-en-de": Stops("cannot be fetched", "the internet"),
    "lightning-tfm fit --config experiments/base.yaml --trainer.devices 8 --trainer.micro_tokens 4000": Run(
        f"{FULL} --trainer.devices 2"
    ),
    "lightning-tfm plan sweeps/table3.yaml --name full --config experiments/base.yaml --rate 1e14 --workers 8": Run(
        FULL
    ),
    f"{FAR} --name long-news --config experiments/miniature-wmt-news.yaml --data.max_len 32 --data.long val": Run(
        f"{SHARED} {LONG} --seeds 41 --only P-rotary"
    ),
    f"{FAR} --name long-lines --model.stack causal --data.corpus builtin-lines": Run(
        f"{SIZES} {HERE} --data.pairs 300 --data.vocab_size 200 --seeds 41 --only P-rotary"
    ),
    "lightning-tfm sweep sweeps/parsing.yaml": Run(TREES),
    "lightning-tfm sweep sweeps/parsing.yaml --name parsing-greedy --evaluation.beam 1": Run(TREES),
    "lightning-tfm data show trees --config experiments/parsing.yaml --config experiments/miniature-parsing.yaml "
    "--pairs 3": Run("--data.pairs 90 --data.vocab_size 150"),
    "lightning-tfm fit --config experiments/parsing.yaml --data.folder FOLDER": Stops(
        "has no trees of a split '22'", "the Penn Treebank"
    ),
    LM: Run(ALONE),
    f"{LM} --data.corpus lines --data.folder FOLDER": Run(LINES),
    "lightning-tfm data prepare lines --config experiments/language-model.yaml --data.folder FOLDER": Run(
        "--data.vocab_size 44"
    ),
    f"{OF_LINES} --name my-text --data.corpus lines --data.folder FOLDER": Run(f"{LINES} --seeds 61 --only A-h1"),
    f"{OF_LINES} --name tatoeba-lines --data.corpus lines --data.folder FOLDER "
    '--data.test "" --data.max_words 0 --data.vocab_size 2000': Parsed("the same with another text runs above"),
    "lightning-tfm sweep sweeps/scan.yaml --name scan-length --data.train length-train --data.dev length-test": Parsed(
        "21 runs"
    ),
    "lightning-tfm sweep sweeps/scan.yaml --name scan-jump --data.train jump-train --data.dev jump-test": Parsed(
        "21 runs"
    ),
    "lightning-tfm sweep sweeps/layers.yaml --name distance --only L-near3,L-near7,L-conv,L-dilated,L-lstm "
    "--seeds 41-43": Run(f"{SHORT} --seeds 41"),
    MINE: Run(f"{SHORT} --seeds 51,52"),
    f"{MINE} --seeds 51-53": Run(f"{SHORT} --seeds 51-53"),
    f"{MINE} --name mine-on-text --data.corpus files --data.folder FOLDER": Run(f"{SHORT} --seeds 51"),
    f"{TABLE3} --name full --config experiments/base.yaml": Parsed("days"),
    f"{TABLE3} --name wide --config experiments/base.yaml --devices-per-run 8": Parsed("eight GPUs"),
    f"{MINIATURE} --data.corpus my_corpus.Counting --data.pairs 500 --data.vocab_size 100": Run(
        f"{SIZES} {SEARCH} {HERE} --data.test ''"
    ),
    f"{TABLE3} --wandb offline": Parsed("W&B's service, which check_replay starts"),
    f"{TABLE3} --wandb online": Parsed("the internet"),
    f"{JUDGED} --format html --figures figures": Run("--to judge.html"),
    "lightning-tfm judge lightning_logs --row hparams.variant --seed hparams.seed --metric val_acc:higher": Stops(
        "lightning_logs: there is no such file", "logs of Lightning"
    ),
}
for name in ("claims", "scores", "relative", "layers", "norm", "extrapolation", "scan", "stack", "language-model"):
    COMMANDS[f"lightning-tfm sweep sweeps/{name}.yaml"] = Parsed("12 runs or more; its sweep runs below")
for name in ("scores", "relative", "layers", "extrapolation"):
    COMMANDS[f"lightning-tfm report {name} --collect"] = Stops(f"no study '{name}'", "the study", "--out nothing-here")
FOREIGN = {
    "make": "check_make", "python -m benchmarks": "check_benchmark", "pip install dist/": "check_wheel",
    "torchrun": "check_torchrun", "python -m pytest": "check_pytest", "python examples/": "check_example",
    "wandb": "check_wandb", "CUDA_VISIBLE_DEVICES=": "check_wandb",
}  # fmt: skip
"""how a command of another program begins -> the function of this file that checks it"""
MADE_BY = {
    "mine": MINE, "my-sweep.yaml": MINE, "sweeps/parsing.yaml": "lightning-tfm sweep sweeps/parsing.yaml",
    "careful": f"{TABLE3} --name careful --seeds auto --max-seeds 8",
}  # fmt: skip
"""a word of a command -> the command that has to be run before it"""
FAST = {
    TABLE3,
    f"{MINIATURE} --row A-h1",
    "lightning-tfm plan sweeps/table3.yaml",
    "lightning-tfm status",
    "lightning-tfm resume table3",
    "lightning-tfm table table3 --format markdown",
    "lightning-tfm report table3 --format latex --tests p --no-paper --label tab:ablation",
    'echo "Ta torror venla narva ta povens." | lightning-tfm translate results/runs/RUN',
    "lightning-tfm runs list",
    "lightning-tfm doctor",
}
"""run to their end in every `make test`, as judge is; of the others options are read and files found"""
EXPERIMENTS = dict.fromkeys(("base", "base-bf16", "base-en-fr", "big-en-fr"), FULL)
EXPERIMENTS |= dict.fromkeys(("big", "big-bf16"), BIG) | dict.fromkeys(
    ("demo", "miniature", "miniature-8-epochs"), MADE_UP
)
EXPERIMENTS |= {f"miniature-{name}": SHARED for name in ("multi30k", "wmt-news", "tatoeba", "manpages")}
EXPERIMENTS |= dict.fromkeys(("multi30k", "wmt-news"), FEW)
EXPERIMENTS |= {
    "base-bpe": f"{FULL} --data.vocabulary pieces.en",
    "first_code": SHORT,
    "extrapolation": f"{SHORT} {LONG}",
    "scan": SCAN,
    "language-model": f"{ALONE} --evaluation.extra_len 4",
    "parsing": f"{TREES} --miniature.width 32 --data.corpus trees --data.train train --data.dev val --data.test ''",
    "miniature-parsing": TREES,
    "ratios": f"{SEARCH} {HERE} --data.vocab_size 120 --miniature.seen 0.001",
}
"""how each is shortened"""
ROWS = {
    name: name for name in "claims data forecast layers layers-equal modern modern-equal positions scores stack".split()
}
ROWS |= {"table3": "table3", "parsing-rows": "parsing"}
"""files of rows -> the sweep that runs them"""
KINDS = {"sh", "python", "yaml", "text", "", "{toctree}", "{include}", "{literalinclude}"}
"""languages of blocks; all but sh, python and yaml are shown, not run"""
SNIPPETS: dict[str, tuple[tuple[str, str], ...]] = {
    "docs/attention.md": (),
    "docs/attention_heads.py": (
        ("man woman boy girl child dog ball shirt hat street wall bench car table", " ".join(WORDS)),
        ("Mann Frau Junge Mädchen Kind Hund Ball Hemd Hut Straße Wand Bank Auto Tisch", " ".join(WORDS).upper()),
        ("a an the", " ".join(WORDS)),
        ("ein eine einen einem einer eines der die das den dem des", " ".join(WORDS)),
        ("test_2016_flickr", "test"),
        ("sys.argv[1]", '"RUN"'),
    ),
    "docs/howto/judge.md": (),
    "docs/howto/notebook.ipynb": (("--seeds 1,2", f"--seeds 1,2 {SHORT}"),),
    "docs/howto/python.md": (
        ("max_steps=40", "max_steps=2"),
        ("val_check_interval=20", "val_check_interval=1"),
        ('yaml", row', 'yaml", "short.yaml", row'),
    ),
}
"""what makes a document's Python fit the small text; short.yaml holds the options of SHORT"""
FIRST_SEED = {"positions": 21, "heads-tuned": 21, "modern": 31, "layers-equal": 51, "modern-equal": 54}
FIRST_SEED |= dict.fromkeys(("relative", "layers", "scores", "claims"), 41)
SWEEPS = {name: f"{SHORT} --seeds {seed}" for name, seed in FIRST_SEED.items()}
SWEEPS |= {
    "table3": f"{SHORT} --name all-rows",
    "parsing": f"{TREES} --name all-trees",
    "scan": f"{SCAN} --seeds 31",
    "language-model": f"{ALONE} --name all-alone --seeds 61",
    "stack": f"{SHORT} --name stacks --seeds 61",
    "forecast": f"{SHORT} --miniature.steps 2000 --seeds 31",
    "heads": f"{SHORT} --name all-heads",
    "ladder": "--scales 32,64 --only A-h1 --seeds 1,2 --miniature.depth 6 --miniature.seen 0.003 "
    "--data.vocab_size 120 --training.tokens 200 --workers 1",
    "norm": f"{SHORT} {WARM} --seeds 31",
    "extrapolation": f"{SHORT} {LONG} --seeds 41",
    "data": f"{SIZES} {SEARCH} --seeds 41",
    "search": f"{SHORT} --name two-trials --miniature.steps 1000 --training.tokens 130 --trials 3 --seed 2",
}
"""how each is shortened"""


# --- what stands in the README ---


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of each fenced block."""
    yield from re.findall(r"^```([\w{}-]*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """The commands of the shell blocks, comments away, continued lines joined."""
    shell = [re.sub(r"\\\n\s*", "", content) for language, content in blocks(text) if language == "sh"]
    lines = [line for content in shell for line in content.splitlines()]
    return [plain for line in lines if (plain := re.sub(r"(^|\s+)#\s.*", "", line).strip())]


def inline(text: str) -> list[str]:
    """Code within a paragraph, each on one line."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", outside)]


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
        return how.check not in ("check_replay", "check_pytest")
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
    code, said = place.run(f"{WALK.replace('FOLDER', text)} {short}")
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


def check_make(line: str, place: Place | None) -> None:
    """The target is there, and what it runs is a command of ours that parses, or pytest."""
    program, target, *variables = shlex.split(line)
    command = [program, "--dry-run", "--always-make", "--no-print-directory", target, *variables]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    recipe = done.stdout.splitlines()[-1]
    if target == "install":
        assert "pip install" in done.stdout and "activate" in recipe, done.stdout
    elif "lightning-tfm" in recipe:
        check_parsed(recipe[recipe.index("lightning-tfm") :])
    else:
        assert {"pytest", "benchmarks", "sphinx", "check", "wheel"} & set(done.stdout.split()), done.stdout


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


def check_parsed(line: str) -> None:
    """The parser takes it, and the files that it names are there. Nothing is run."""
    program, verb, *argv = shlex.split(line)
    assert program == "lightning-tfm" and verb in VERBS, line
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main([verb, *argv, "--print_config"])
    assert code == 0, f"{line}: {said.getvalue()}"


# --- what is said in passing ---


@cache
def options_of(verb: str) -> set[str]:
    said = io.StringIO()
    kinds = [["--to", "safetensors"], ["--to", "csv"]] if verb == "export" else [[]]
    for kind in kinds:
        with contextlib.redirect_stdout(said), pytest.raises(SystemExit):
            main([verb, *kind, "--help", "all"])
    return set(re.findall(r"--[\w.-]+", said.getvalue()))


NOT_IN_HELP = {"--extra-index-url", "--help"}


def check_mentioned(code: str) -> None:
    """Verbs, options, files, modules and extras that a piece of code names are there."""
    words = shlex.split(code.removeprefix("lightning-tfm ").replace("COMMAND", "fit"))
    if code.startswith("make "):
        check_make(code, None)
    elif words[:2] == ["pip", "install"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.findall(r"lightning_tfm\[([\w-]+)\]", code)) <= extras.keys(), code
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]), code
    elif words[0] == "pytest":
        assert (ROOT / words[-1]).exists(), code
    elif words[0] in VERBS or words[0].startswith("--"):
        verbs = [words[0]] if words[0] in VERBS else [*VERBS]
        known = NOT_IN_HELP.union(*map(options_of, verbs))
        for word in words:
            if word.startswith("--"):
                assert word in known, f"{' and '.join(verbs[:3])} have no {word}: {code}"
            elif re.fullmatch(r"(experiments|sweeps)/.*", word):
                find_file(word)
    else:
        assert not code.startswith("lightning-tfm "), f"no such verb: {code}"


def worth(code: str) -> bool:
    """Whether code in passing says something to check: an option, or a command."""
    return " " in code or code.startswith("--")


@pytest.mark.parametrize("code", sorted({code for text in DOCUMENTS.values() for code in inline(text) if worth(code)}))
def test_mentioned(code):
    check_mentioned(code)


def heads() -> list[tuple[str, str]]:
    """File and command of each line in the head of a shipped file that says how it is run; brackets are optional."""
    found = []
    for path in sorted(path for folder in FOLDERS for path in shipped_folder(folder).glob("*.yaml")):
        for line in re.findall(r"^# (?:Command|Ours) +(.*)$", path.read_text(), re.MULTILINE):
            parts = re.sub(r"\(.*?\)|[\[\]]", "", line).split(";")
            found += [(path.name, part.strip().removeprefix("all rows: ")) for part in parts]
    return found


@pytest.mark.parametrize(("file", "line"), heads())
def test_command_in_the_head_of_a_file(file, line):
    check_mentioned(line)
    if line.startswith(("lightning-tfm fit", "lightning-tfm sweep", "lightning-tfm tune")):
        check_parsed(line)
        assert file.partition(".")[0] in line, f"{file} names the command of another file"


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)]+)\)|src(?:set)?=\"([^\"]+)\"", DOCUMENTS[name]):
        path, _, heading = "".join(target).partition("#")
        if path.startswith("https://"):
            continue
        there = (ROOT / name).parent / path if path else ROOT / name
        assert there.exists(), path
        if heading:
            headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, path + heading


def test_the_readme_is_read_in_five_minutes():
    assert len(DOCUMENTS["README.md"].splitlines()) <= 120


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


@pytest.mark.parametrize(
    "code",
    [
        "lightning-tfm fti",
        "make table4",
        "pip install 'lightning_tfm[paper]'",
        "python -m benchmarks.nothing",
        "pytest -m long tests/system/test_nothing.py",
        "export RUN --two safetensors",
        "--modle.h 3",
        "lightning-tfm sweep sweeps/table4.yaml",
    ],
)
def test_a_wrong_mention_is_seen(code):
    with pytest.raises((AssertionError, UserError, subprocess.CalledProcessError, ModuleNotFoundError)):
        check_mentioned(code)
