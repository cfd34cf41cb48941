"""A results folder that an earlier version left in mid-study (commit 316f6c1, SIGTERM) goes on under this one.

before.tar.xz holds the study of sweep.yaml: base is finished, A-h1 was handed back at step 202 of 600.
"""

import contextlib
import io
import json
import os
import tarfile
import warnings
from pathlib import Path

import pytest

from lightning_tfm.cli.main import main
from tests.helpers.tiny import in_child

PLACE = Path(__file__).parent
NLL = {"eb72bac0e198ca19": 390.8784453868866, "eb4c27931d5fbd9f": 412.4513930529356}
"""run -> dev nll; that of A-h1 as the earlier version came to it from the same checkpoint"""


def go_on(folder: str) -> tuple[int, str]:
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        codes = [main(["sweep", "sweep.yaml", "--workers", "1"]), main(["report", "before", "--format", "json"])]
    return max(codes), said.getvalue()


@pytest.mark.long
def test_an_earlier_version_s_study_is_resumed_and_reported(tmp_path: Path) -> None:
    with tarfile.open(PLACE / "before.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    finished = (tmp_path / "results/runs/eb72bac0e198ca19/result.json").read_bytes()
    code, said = in_child(go_on, str(tmp_path))
    assert code == 0, said
    assert (tmp_path / "results/runs/eb72bac0e198ca19/result.json").read_bytes() == finished
    records = {p.parent.name: json.loads(p.read_bytes()) for p in tmp_path.glob("results/runs/*/result.json")}
    assert {name: record["attempts"] for name, record in records.items()} == dict(zip(NLL, (1, 2), strict=True))
    found = {name: record["scores"]["dev"]["nll"] for name, record in records.items()}
    if found != NLL:
        warnings.warn("losses compared within 5e-2: the earlier version ran on another place", stacklevel=1)
    # 398 steps after another processor's rounding are a draw of chaos: 2.5 % apart on a CPU without AVX-512
    assert found == pytest.approx(NLL, rel=5e-2)
    log = (tmp_path / "results/runs/eb4c27931d5fbd9f/log.txt").read_text()
    assert log.count("step-00000202.ckpt: written before checkpoints had checksums; accepted unverified") == 1
    rows = json.loads(said[said.index("\n{") :])["rows"]
    shown = {row["row"]: row["ppl"]["mean"] for row in rows}
    assert shown == {"base": ppl(records["eb72bac0e198ca19"]), "A-h1": ppl(records["eb4c27931d5fbd9f"])}


def ppl(record: dict) -> float:
    return pytest.approx(record["scores"]["dev"]["ppl"], rel=1e-9)
