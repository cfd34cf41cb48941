"""Every file of a run folder cut short and flipped in turn: what is read is right to the bit, or refused by name."""

import json
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_tfm.atomic_io import to_json
from lightning_tfm.cli.main import main
from lightning_tfm.config import Experiment, Hardware
from lightning_tfm.data.dataset import Prepared
from lightning_tfm.data.prepare import prepare
from lightning_tfm.errors import UserError
from lightning_tfm.inference.load import Trained
from lightning_tfm.report.records import FilledCell, collect_cells, read_cells, with_sentences
from lightning_tfm.runs.folder import RunFolder, experiment_of
from lightning_tfm.runs.record import Missing
from lightning_tfm.runs.weights import average_weights, last
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints, Paper, Row
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import link
from lightning_tfm.sums import with_checksum
from lightning_tfm.training.weight_files import verify
from lightning_tfm.watch.run_state import Curve, RunState
from tests.helpers.tiny import attempt, experiment, in_child, metrics, weights, write_corpus
from tests.system.moments import Strike

HARDWARE = Hardware(checkpoint_every=4, validate_every=5, log_every=1)
WEIGHTS = ("checkpoints", "snapshots")
FLIPS = (0.5, 0.97)
"""places in a file at which a bit is flipped"""


def make(root: Path) -> Experiment:
    return experiment(root / "text", training__steps=22, training__average_last=2, training__average_every=6)


def interrupted(e: Experiment, root: Path) -> tuple[int, Path]:
    Strike("update", 19, signal.SIGTERM).arm()
    return attempt(e, root, HARDWARE)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    write_corpus(root / "text")
    code, path = in_child(attempt, make(root), root, HARDWARE)
    assert code == 0
    return path


@pytest.fixture(scope="module")
def stopped(finished, tmp_path_factory) -> Path:
    """The same run, stopped after step 19; its checkpoints are those of steps 16 and 19."""
    root = tmp_path_factory.mktemp("stopped")
    code, path = in_child(interrupted, make(finished.parents[1]), root)
    assert code == 143
    return path


def damages(path: Path) -> Iterator[tuple[str, bytes]]:
    """What becomes of a file, and its name."""
    whole = path.read_bytes()
    if whole:
        yield "cut short", whole[: len(whole) // 2]
    for place in FLIPS[: len(whole)]:
        i = int(place * len(whole))
        yield f"bit {i} flipped", whole[:i] + bytes([whole[i] ^ 4]) + whole[i + 1 :]


def files(run: Path) -> list[str]:
    """Those of a run's folder but its log and its locks, which hold nothing."""
    found = sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size)
    return [path.relative_to(run).as_posix() for path in found if path.name != "log.txt"]


def study(run: Path) -> Ablation:
    root, e = run.parents[1], make(run.parents[1])
    prepared = prepare(e.data, root)
    prints = Fingerprints.of(prepared, e.data)
    row = Row("base", "base", {}, Paper(None, None, None), "here")
    return Ablation(
        name="one", base=e, prints=prints, V=prepared.tokenizer.V, store=prepared.folder.name, rows=[row], seeds=[1]
    )


def shown(one: Ablation, run: Path) -> Any:
    """What a table and a report show of the run; a text where they refuse it."""
    cells = with_sentences(read_cells(one, run.parents[1]))
    if not cells.filled:
        return cells.empty["base", 1].reason
    cell = cells.filled["base", 1]
    return cell.dev, {name: one.tolist() for name, one in cell.sums.items()}, Curve.of(cell.folder).validations


def held(run: Path) -> dict[str, torch.Tensor]:
    """The weights that inference takes."""
    folder = RunFolder(run.parents[1], run.name)
    e = experiment_of(folder)
    both = {"last": last(folder, e), "average": average_weights(folder, e)}
    return {f"{which}.{name}": value for which, found in both.items() for name, value in found.items()}


def or_refusal(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except UserError as error:
        return str(error)


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(torch.equal(found[k], expected[k]) for k in expected)
    return found == expected


def test_a_finished_run_damaged_is_read_right_or_refused(finished):
    one = study(finished)
    expected = {"table": shown(one, finished), "weights": held(finished)}
    assert not isinstance(expected["table"], str) and len(expected["table"][2]) == 5
    refused: dict[str, set[str]] = {}
    for name in files(finished):
        path = finished / name
        whole = path.read_bytes()
        for what, damaged in damages(path):
            path.write_bytes(damaged)
            for of in ("weights",) if path.parent.name in WEIGHTS else ("table", "weights"):
                found = or_refusal((lambda: shown(one, finished)) if of == "table" else (lambda: held(finished)))
                if isinstance(found, str):
                    refused.setdefault(name, set()).add(found)
                else:
                    assert same(found, expected[of]), f"{name}, {what}: another {of}"
        path.write_bytes(whole)
    e = make(finished.parents[1])
    scores = f"scores/{expected['table'][0].evaluation_hash[:16]}/{e.data.dev}"
    must = {"result.json", "metrics.jsonl", "snapshots/step-00000016.pt", f"{scores}.json", f"{scores}.hyp.txt"}
    assert must | {f"{scores}.sentences.tsv"} <= refused.keys()
    for name in ("snapshots/step-00000016.pt", "metrics.jsonl", f"{scores}.hyp.txt"):
        assert all(Path(name).name in text and "damaged" in text for text in refused[name]), refused[name]


def test_a_missing_snapshot_and_another_step_s_weights_are_named(finished, tmp_path):
    run = Path(shutil.copytree(finished.parents[1], tmp_path / "r")) / "runs" / finished.name
    first, second = sorted((run / "snapshots").iterdir())
    shutil.copy(second, first)
    assert "calls itself" in or_refusal(lambda: held(run)) and first.name in or_refusal(lambda: held(run))
    first.unlink()
    assert str(first) in or_refusal(lambda: held(run))
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    folder = RunFolder(tmp_path / "r", run.name)
    assert same(last(folder, experiment_of(folder)), weights_of(finished))  # the last snapshot holds them too
    second.unlink()
    assert "step-00000022.ckpt" in or_refusal(lambda: held(run))


def test_what_another_run_wrote_is_refused_by_its_name(finished, tmp_path):
    run = Path(shutil.copytree(finished.parents[1], tmp_path / "r")) / "runs" / finished.name
    one, other = study(finished), "0" * 16
    cell = collect_cells(one, tmp_path / "r", None)["base", 1]
    assert isinstance(cell, FilledCell)
    score = run / "scores" / cell.dev.evaluation_hash[:16] / f"{one.base.data.dev}.json"
    ours = json.loads(score.read_bytes())
    assert ours["run"] == run.name and "run" not in json.loads((run / "result.json").read_bytes())["scores"]["dev"]
    older = {key: value for key, value in ours.items() if key != "run"}
    for theirs, said in (
        (ours | {"run": other}, f"val.json is the score of run {other}"),
        (older | {"nll": ours["nll"] * 1.001}, "val.json is not the score that result.json holds"),
    ):
        score.write_bytes(to_json(with_checksum({key: value for key, value in theirs.items() if key != "sha256"})))
        assert said in shown(one, run)
    score.write_bytes(to_json(with_checksum({key: value for key, value in older.items() if key != "sha256"})))
    assert not isinstance(shown(one, run), str)
    whole = json.loads((run / "result.json").read_bytes())
    for named, trained, said in (
        (whole["identity"]["train"], "z" * 64, "trained on another text"),
        ("z" * 64, "z" * 64, "holds another text"),
    ):
        theirs = whole | {"identity": whole["identity"] | {"train": named}, "data": whole["data"] | {"train": trained}}
        del theirs["sha256"]
        (run / "result.json").write_bytes(to_json(with_checksum(theirs)))
        folder = RunFolder(tmp_path / "r", run.name)
        with pytest.raises(UserError, match=said):
            Trained.open(folder, experiment_of(folder))
    (run / "result.json").write_bytes(to_json(whole))
    run.rename(run.with_name(other))
    with pytest.raises(UserError, match=f"it is the record of run {finished.name}"):
        RunFolder(tmp_path / "r", other).finished()


def test_a_digit_of_a_finished_curve_leaves_its_run_out_of_the_table(finished, tmp_path):
    run = Path(shutil.copytree(finished.parents[1], tmp_path / "r")) / "runs" / finished.name
    curve = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(re.sub(r'("dev_ppl": \d)', r"\g<1>9", curve, count=1))
    left_out = collect_cells(study(finished), tmp_path / "r", None)["base", 1]
    assert isinstance(left_out, Missing) and "metrics.jsonl: damaged" in left_out.reason
    now = RunState.of(run)
    assert now.state == "finished" and "metrics.jsonl: damaged" in now.words and not now.curve
    assert not Curve.of(run, now.record).lines


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return {name.removeprefix("transformer."): value for name, value in weights(run).items()}


def resumed(run: Path) -> tuple[int, str]:
    """Exit code, and what the run said."""
    code, path = in_child(attempt, make(run.parents[1]), run.parents[1], HARDWARE)
    assert path == run
    said = (run / "outcome.json").read_text() if (run / "outcome.json").exists() else ""
    return code, said


def copy(run: Path, to: Path) -> Path:
    """A results folder with its text, at another place."""
    shutil.copytree(run.parents[1], to, dirs_exist_ok=True)
    write_corpus(to / "text")
    return to / "runs" / run.name


def ends_right(run: Path, finished: Path) -> None:
    assert metrics(run) == metrics(finished)
    assert same(weights_of(run), weights_of(finished))
    ours, theirs = (json.loads((path / "result.json").read_bytes()) for path in (run, finished))
    for key in ("scores", "target_tokens", "padding", "identity"):
        assert ours[key] == theirs[key], key


def test_a_torn_newest_checkpoint_gives_way_to_the_one_before_it(stopped, finished, tmp_path, capfd):
    run = copy(stopped, tmp_path)
    newest = run / "checkpoints/step-00000019.ckpt"
    newest.write_bytes(newest.read_bytes()[:-900])
    for folder in (run, run / "checkpoints", run / "attempts"):
        (folder / ".x.0123456789ab.tmp").write_bytes(b"half")
    assert resumed(run)[0] == 0
    assert not list(run.rglob(".*.tmp"))
    said = capfd.readouterr().err
    assert "step-00000019.ckpt: damaged" in said and "resuming from" in said and "step-00000016.ckpt" in said
    ends_right(run, finished)
    ran = json.loads((run / "result.json").read_bytes())["ran"]
    assert [(one["attempt"], one["first"], one["last"]) for one in ran] == [(1, 1, 16), (2, 17, 22)]


def test_no_whole_checkpoint_is_refused_and_nothing_begins_again(stopped, tmp_path):
    run = copy(stopped, tmp_path)
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-900])
    code, said = resumed(run)
    assert code == 2 and "step-00000016.ckpt" in said
    link(tmp_path / "studies" / "one", Cell("base", 1, run.name.ljust(64, "0"), 1.0))
    remove = re.search(r"lightning-tfm (runs remove .+?), then the same command again", said)
    assert main(shlex.split(remove[1])) == 0, "in a study, too"
    assert not run.exists()


@pytest.mark.long
def test_a_stopped_run_damaged_goes_on_right_or_is_refused(stopped, finished, tmp_path):
    for number, name in enumerate(files(stopped)):
        some = list(damages(stopped / name))
        for what, damaged in some[:2] if Path(name).parent.name in WEIGHTS else some[1:2]:
            run = copy(stopped, tmp_path / f"{number}{what[0]}")
            (run / name).write_bytes(damaged)
            code, said = resumed(run)
            assert code == 0 or (code == 2 and Path(name).name in said), (name, what, said)
            if code == 0:
                ends_right(run, finished)


def test_a_store_damaged_is_refused_by_name(finished):
    e = make(finished.parents[1])
    store = prepare(e.data, finished.parents[1]).folder
    expected = ids(store)
    for path in sorted(path for path in store.iterdir() if path.stat().st_size):
        whole = path.read_bytes()
        for what, damaged in damages(path):
            path.write_bytes(damaged)
            found = or_refusal(lambda: ids(store))
            assert found == expected or (isinstance(found, str) and path.name in found), (path.name, what)
            assert path.name == "checksums.json" or isinstance(found, str), (path.name, what)
        path.write_bytes(whole)


def ids(store: Path) -> list[Any]:
    prepared = Prepared(store)
    found: list[Any] = [prepared.train_fingerprint, prepared.tokenizer.fingerprint]
    for role in ("train", "val", "test"):
        split = prepared.split(role)
        found += [split.source(i).tolist() + split.target(i).tolist() for i in range(len(split))]
        found += [] if role == "train" else split.target_text()
    return found


def test_a_file_of_an_earlier_version_has_no_checksum_and_is_read(tmp_path):
    path = tmp_path / "step-00000001.pt"
    torch.save({"w": torch.arange(4000.0)}, path)
    assert not verify(path, "any")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"step-00000001\.pt: damaged"):
        verify(path, "any")


def test_a_run_is_opened_with_its_own_weights_alone(finished, tmp_path):
    """Translating with another run's snapshot in place of this one's is refused."""
    run = copy(finished, tmp_path)
    folder = RunFolder(tmp_path, run.name)
    Trained.open(folder, experiment_of(folder))
    for path in (run / "checkpoints").iterdir():
        data = path.read_bytes()
        path.write_bytes(
            data[: data.rindex(run.name.encode())] + b"0" * 16 + data[data.rindex(run.name.encode()) + 16 :]
        )
    (run / "snapshots/step-00000022.pt").unlink()
    assert "step-00000022.ckpt: damaged" in or_refusal(lambda: Trained.open(folder, experiment_of(folder)))
