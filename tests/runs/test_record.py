"""Records: the same bytes as ever, and records of all ages are read."""

import json
import lzma
import math
import tarfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from lightning_tfm.atomic_io import to_json
from lightning_tfm.runs.record import (
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
from lightning_tfm.sums import signed
from tests.helpers.studies import DEV, record

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
    path.write_bytes(to_json(signed(to_plain(record(ppl=math.inf, nll=8000.0)))))
    assert json.loads(path.read_text(), parse_constant=refuse)["scores"]["dev"]["ppl"] == "Infinity"
    found = read_record(path)
    assert isinstance(found, RunRecord) and found.scores["dev"].ppl == math.inf and found.scores["dev"].nll == 8000
    path.write_bytes(to_json(signed(to_plain(record()) | {"flops": "Infinity"})))
    assert "flops='Infinity': expected a number" in read_record(path).reason


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
    result.write_bytes(to_json(signed(to_plain(record()))))
    assert read_score(path) == missing
    path.write_bytes(to_json(signed(to_plain(score) | left)))
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
