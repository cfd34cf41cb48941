"""Records, scores and samples of a run: the same bytes as ever, and those of all ages are read."""

import json
import lzma
import math
import tarfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_tfm.atomic_io import to_json
from lightning_tfm.cli.main import main
from lightning_tfm.config import Data, Hardware, to_dict
from lightning_tfm.dashboard.texts import over_time
from lightning_tfm.data.prepare import prepare
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.inference import head_ablation
from lightning_tfm.inference.load import Trained
from lightning_tfm.inference.rescore import score_long
from lightning_tfm.metrics import in_print
from lightning_tfm.parseval import F1
from lightning_tfm.report.analyses.head_ablation import head_blocks
from lightning_tfm.report.records import read_columns
from lightning_tfm.runs.evaluation import by_length
from lightning_tfm.runs.folder import RunFolder, StaleAttempt, find_run
from lightning_tfm.runs.record import (
    ByLength,
    Measure,
    Missing,
    Progress,
    RunRecord,
    Score,
    from_plain,
    read_record,
    read_score,
    read_small,
    to_plain,
)
from lightning_tfm.runs.samples import COUNT, Samples
from lightning_tfm.sums import with_checksum
from lightning_tfm.training.evaluate import Line
from tests.helpers.studies import DEV, record
from tests.helpers.tiny import attempt, experiment, in_child, metrics, train, weights, write_corpus

ARCHIVE = Path("experiments/results/miniature/records.tar.xz")


def test_committed_records_come_out_as_they_went_in():
    with tarfile.open(fileobj=BytesIO(lzma.decompress(ARCHIVE.read_bytes()))) as archive:
        names = [name for name in archive.getnames() if name.endswith("/result.json")][:5]
        files = [archive.extractfile(name) for name in names]
        contents = [file.read() for file in files if file is not None]
    assert len(contents) == 5
    for content in contents:
        found = from_plain(json.loads(content))
        assert isinstance(found, RunRecord) and to_json(to_plain(found)) == content


def test_fields_that_came_later_and_keys_that_nobody_knows(tmp_path):
    plain = to_plain(record())
    for key in ("padding", "train_seconds", "hardware", "git", "data", "inexact", "attempts", "ended", "V"):
        del plain[key]
    del plain["seconds"]["decode"], plain["scores"]["dev"]["sentences"]
    path = result_in(tmp_path)
    path.write_bytes(to_json(plain | {"versions": None, "mood": "good"}))
    found = read_record(path)
    assert isinstance(found, RunRecord)
    assert (found.ended, found.V, found.git, found.versions, found.data.store) == (None, None, None, {}, "")
    assert found.seconds.decode is None and found.scores["dev"].sentences is None
    assert found.scores["dev"].bleu == 50.0 and found.parameters.total == 7


def test_a_run_that_is_not_finished_has_no_record_and_a_damaged_one_is_told_from_it(tmp_path):
    path = result_in(tmp_path)
    assert read_record(path) == Missing("there is none")
    path.write_text('{"status": "failed"}')
    assert read_record(path) == Missing("failed")
    path.write_bytes(to_json(to_plain(record()) | {"attempts": "two"}))
    assert read_record(path) == Missing(
        "its record is malformed: attempts='two': expected a whole number", damaged=True
    )


def test_an_infinite_perplexity_is_kept_in_valid_json(tmp_path):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    path = result_in(tmp_path)
    path.write_bytes(to_json(with_checksum(to_plain(record(ppl=math.inf, nll=8000.0)))))
    assert json.loads(path.read_text(), parse_constant=refuse)["scores"]["dev"]["ppl"] == "Infinity"
    found = read_record(path)
    assert isinstance(found, RunRecord) and found.scores["dev"].ppl == math.inf and found.scores["dev"].nll == 8000
    path.write_bytes(to_json(with_checksum(to_plain(record()) | {"flops": "Infinity"})))
    assert "flops='Infinity': expected a number" in read_record(path).reason
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"a": math.nan})


@pytest.mark.parametrize("more", [{}, {"chrf": 1.5, "paper_bleu": None, "chrf_signature": "c"}])
def test_scores_with_and_without_what_validate_adds(tmp_path, more):
    path = tmp_path / "val.json"
    path.write_bytes(to_json(to_plain(DEV) | more))
    found = read_score(path)
    assert found == replace(DEV, measures={"chrf": Measure(1.5, "c")} if more else {})
    assert to_plain(found) | more == to_plain(DEV) | more


@pytest.mark.parametrize("left", [{}, {"files": {}}])
def test_a_score_without_its_checksum_is_damaged_unless_its_run_is_older_than_checksums(tmp_path, left):
    """Those of the committed archives are read, with and without (tests/test_committed.py)."""
    result = result_in(tmp_path)
    score = replace(DEV, ppl=1.5, files={"val.hyp.txt": "0" * 64}, run=result.parent.name)
    path = result.parent / "scores" / ("e" * 16) / "val.json"
    path.parent.mkdir(parents=True)
    kind = "malformed" if left else "damaged"
    missing = Missing(f"its record is {kind}: its checksum is missing", damaged=True)
    for name, plain in ((path, to_plain(score) | left), (result, to_plain(record()))):
        name.write_bytes(to_json(plain))
    assert read_score(path) == (replace(score, files={}) if left else missing)
    result.write_bytes(to_json(with_checksum(to_plain(record()))))
    assert read_score(path) == missing
    path.write_bytes(to_json(with_checksum(to_plain(score) | left)))
    assert isinstance(read_score(path), Score), read_score(path)
    result.write_bytes(to_json(to_plain(replace(record(), files={"metrics.jsonl": "0" * 64}))))
    assert read_record(result).damaged, "a record that has lost its own"


def test_a_number_outside_its_range_is_damage_and_named(tmp_path):
    path = tmp_path / "progress.json"
    good = {"step": 3, "steps": 9, "tokens_per_second": 2.5, "phase": "train", "time": 1.7e9, "attempt": 1}
    for key, value in (("time", 1e300), ("time", -1), ("step", 1e300), ("steps", -5), ("attempt", 10**400)):
        path.write_text(json.dumps(good | {key: value}))
        with pytest.raises(ValueError, match=f"malformed: {key}=.*: expected "):
            read_small(Progress, path)
    path.write_text(json.dumps(good))
    assert read_small(Progress, path) == Progress(**good)


def result_in(root: Path) -> Path:
    """Where the file of `record()` is expected."""
    path = root / record().training_hash[:16] / "result.json"
    path.parent.mkdir()
    return path


PACKED = Path(__file__).parents[1] / "archives" / "own.tar.xz"
EARLIER = (
    "own_ff.Reversed trained under an earlier version, which drew anew what a constructor had set; new runs need a "
    "study of another name"
)


@pytest.fixture
def root(tmp_path, capsys):
    assert main(["records", "unpack", str(PACKED), "--out", str(tmp_path)]) == 0
    assert "own: 2 runs unpacked" in capsys.readouterr().out
    return tmp_path


def test_it_reads_and_prints_with_a_line_of_the_version(root, capsys):
    assert main(["table", "own", "--out", str(root)]) == 0
    out, err = capsys.readouterr()
    assert err == f"own: {EARLIER}\n" and " 14.77 " in out and " 14.86 " in out
    assert main(["status", "own", "--out", str(root)]) == 0
    out, err = capsys.readouterr()
    assert err == f"own: {EARLIER}\n" and "own: 2 finished" in out


def test_its_pages_have_the_line(root, capsys):
    assert main(["report", "own", "--to", "-", "--out", str(root)]) == 0
    assert EARLIER in capsys.readouterr().out


HARDWARE = Hardware(validate_every=5, log_every=4)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]


def untouched(e, root: Path) -> tuple[int, Path]:
    Samples.take = lambda self, module, step: None
    return attempt(e, root, HARDWARE)


def test_sentences_and_their_translations_at_every_validation_and_the_same_weights_without(corpus, tmp_path):
    e = experiment(corpus, training__steps=12)
    code, run = in_child(attempt, e, tmp_path / "a", HARDWARE)
    assert code == 0
    head, *taken = lines(run)
    val = (corpus / "val.en").read_text().splitlines()
    assert head["sources"] == [val[i] for i in head["lines"]] and len(head["lines"]) == COUNT
    assert [line["step"] for line in taken] == [5, 10, 12]
    assert all(len(line["translations"]) == COUNT for line in taken)
    assert [len(sentence.translations) for sentence in over_time(run)] == [3] * COUNT
    norms = [line["grad_norm"] for line in metrics(run) if "loss" in line]
    assert len(norms) == 3 and all(0 < norm < 1e3 for norm in norms)
    code, other = in_child(untouched, e, tmp_path / "b")
    assert code == 0 and not (other / "samples.jsonl").exists()
    assert metrics(run) == metrics(other)
    assert all(torch.equal(a, b) for a, b in zip(weights(run).values(), weights(other).values(), strict=True))


def test_an_attempt_drops_what_came_after_its_checkpoint_and_what_is_damaged(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(Samples, "_translate", lambda self, module: ["x"] * COUNT)
    prepared = prepare(experiment(corpus).data, tmp_path)
    folder = RunFolder(tmp_path, "ab" * 32)

    def begun() -> Samples:
        return Samples(folder.claim(), prepared.split("val"), prepared.tokenizer, compiled=False)

    first = begun()
    for step in (5, 10, 15):
        first.take(None, step)
    with (folder.path / "samples.jsonl").open("a") as file:
        file.write('{"step": 20, "transl')  # killed while writing
    record = json.loads((folder.attempts / "0001.json").read_bytes())
    (folder.attempts / "0001.json").write_text(json.dumps(record | {"ended": 1.0}))
    second = begun()
    second.take(None, 10)
    second.take(None, 15)
    assert [line["step"] for line in lines(folder.path)] == [0, 5, 10, 15]
    with pytest.raises(StaleAttempt):
        first.take(None, 20)
    (folder.path / "samples.jsonl").write_text("[\n{}\n")
    record = json.loads((folder.attempts / "0002.json").read_bytes())
    (folder.attempts / "0002.json").write_text(json.dumps(record | {"ended": 1.0}))
    begun().take(None, 5)
    assert [line["step"] for line in lines(folder.path)] == [0, 5]


def test_every_line_counts_once_on_each_side():
    source, target = np.array([4, 10, 11, 24]), np.array([6, 12, 5, 20])
    lines = [Line(float(t), int(t), [7] * pieces) for t, pieces in zip(target, (4, 11, 1, 3), strict=True)]
    text = ["a b c d", "a b c d e", "b c d e", "f g h i"]
    found = by_length(lines, ["x", *text[1:]], text, (source, target), 10, "13a")
    sides = {side: [c for c in found.classes if c.side == side] for side in ("source", "target", "longer", "both")}
    assert {side: [c.upto for c in some] for side, some in sides.items()} == {
        "source": [0.5, 1.0, 1.5, 2.5],
        "target": [0.5, 1.0, 1.5, 2.0],
        "longer": [1.0, 1.5, 2.5],
        "both": [1.0, 5.0],
    }
    for some in sides.values():
        assert sum(c.sentences for c in some) == 4 and sum(c.tokens for c in some) == 43 == sum(c.nll for c in some)
    within, beyond = sides["both"]
    assert (within.sentences, within.pieces, within.early, within.bleu) == (1, 5, 0, 0.0)
    assert (beyond.sentences, beyond.pieces, beyond.early) == (3, 12 + 2 + 4, 2) and beyond.bleu == pytest.approx(100)


def test_a_run_scores_by_length_and_old_records_are_read(tmp_path):
    e = experiment(
        write_corpus(tmp_path / "text"),
        **{"training__steps": 2, "training__warmup": 1, "evaluation__beam": 1},
        **{"data__max_len": 14, "data__test": ""},
    )
    plain = in_child(train, e, tmp_path / "plain")
    folder = in_child(train, experiment_with(e, "val"), tmp_path / "long")
    before, after = (read_record(path / "result.json") for path in (plain, folder))
    assert isinstance(before, RunRecord) and isinstance(after, RunRecord)
    assert plain.name == folder.name and after.scores["dev"].nll == before.scores["dev"].nll
    assert before.scores.keys() == {"dev"} and "by_length" not in to_plain(before)["scores"]["dev"]
    score = after.scores["long"]
    later = RunFolder(plain.parent.parent, before.training_hash)
    assert [in_child(score_long, later, experiment_with(e, "val")) for _ in range(2)] == [True, False]
    made = read_score(later.scores(score.evaluation_hash) / "val.json")
    assert (
        isinstance(made, Score) and made.by_length == score.by_length and made.evaluation_hash == score.evaluation_hash
    )
    assert isinstance(score.by_length, ByLength) and score.by_length.limit == 14
    assert score.evaluation_hash != after.scores["dev"].evaluation_hash
    scores = folder / "scores" / score.evaluation_hash[:16]
    assert read_score(scores / "val.json") == replace(score, run=folder.name)
    lines = read_columns(scores / "val.sentences.tsv", ("nll", "tokens", "source", "pieces"))
    assert lines[:, 0].sum() == pytest.approx(score.nll) and len(lines) == score.sentences
    pieces = sum(c.pieces for c in score.by_length.classes if c.side == "longer")
    assert lines[:, 3].sum() == pieces
    assert json.loads((folder / "result.json").read_bytes())["experiment"] == to_dict(experiment_with(e, "val"))


def experiment_with(e, split):
    return replace(e, data=replace(e.data, long=split))


TREES = {"data__corpus": "trees", "data__pairs": 90, "data__vocab_size": 150, "data__test": "", "training__steps": 2}


def test_a_run_is_scored_by_what_its_experiment_names(tmp_path):
    e = experiment(tmp_path, **TREES, training__warmup=1, evaluation__beam=1, evaluation__metrics="f1+exact+ill_formed")
    code, path = in_child(attempt, e, tmp_path / "out")
    assert code == 0
    plain = json.loads((path / "result.json").read_bytes())["scores"]["dev"]
    (made,) = path.glob("scores/*/val.hyp.txt")
    references = [tree for _, tree in make_corpus(Data(corpus="trees", pairs=90)).lines("val")]
    score = F1(references, "").corpus(made.read_bytes().decode().split("\n")[:-1])
    assert (plain["f1"], plain["f1_signature"]) == (score.value, score.signature) and plain["ill_formed"] > 90
    record = read_record(path / "result.json")
    assert record.scores["dev"].measures["f1"].value == score.value
    said = in_print(record.scores["dev"])
    assert f"F1 {score.value:.2f}" in said and "ill-formed 1" in said and "chrF" not in said

    trained = Trained.open(find_run(tmp_path / "out", path.name), e)
    text = trained.prepared.split("val").take(range(8))
    for record in (head_ablation.beams(trained, text, e.evaluation, [1], print)["beams"][0],
                   head_ablation.heads(trained, text, e.evaluation, print)):  # fmt: skip
        assert 0 <= record["f1"] <= 100 and "bleu" not in record
    (table, _) = head_blocks(record)
    assert [column.head for column in table.columns][-1] == "F1" and "F1 " in table.title


def test_a_text_without_trees_is_refused_before_anything_is_trained(tmp_path):
    e = experiment(tmp_path, **TREES | {"data__corpus": "builtin"}, training__warmup=1, evaluation__metrics="f1")
    code, path = in_child(attempt, e, tmp_path / "out")
    assert code == 2 and not (path / "result.json").exists() and not list(path.glob("checkpoint*"))
    assert "line 1 of the references is not one" in json.loads((path / "outcome.json").read_bytes())["reason"]
