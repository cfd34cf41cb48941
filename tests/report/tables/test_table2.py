"""The paper's Table 2: its figures as printed, our runs below them by their records alone."""

import json
from dataclasses import replace

from lightning_tfm.cli.main import main
from lightning_tfm.report.tables import of_the_paper
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import Machine, Measure, Seconds, to_plain
from tests.helpers.studies import DEV, record


def write(root, name: str, corpus: str, paper_bleu: float | None, **changes) -> None:
    folder = RunFolder(root, name * 64)
    attempt = folder.claim()
    data = {"corpus": corpus, "source": "en", "target": "de", "test": "newstest2014"}
    made = record(training_hash=folder.training_hash, experiment={"data": data}, **changes)
    attempt.write_json(folder.result, to_plain(made))
    attempt.write_json(folder.cell, {"row": "base", "seed": 3})
    score = replace(DEV, split="newstest2014", bleu=26.71, weights="average")
    both = replace(score, measures={"paper_bleu": Measure(paper_bleu or 0.0, "p")})
    path = folder.scores("f" * 64) / "newstest2014.json"
    attempt.write_json(path, to_plain(both if paper_bleu else score))
    attempt.release()


def test_the_paper_s_costs_are_its_own_arithmetic():
    rows = {line.name: line for line in of_the_paper.table2_lines(of_the_paper.FACTS.parent)}
    assert len(rows) == 10
    assert abs(12 * 3600 * 8 * 9.5e12 / rows["Transformer base"].flops["en-de"] - 1) < 0.01
    assert abs(3.5 * 86400 * 8 * 9.5e12 / rows["Transformer big"].flops["en-fr"] - 1) < 0.01
    assert all(line.source and set(line.bleu) >= set(line.flops) for line in rows.values())


def test_our_runs_stand_below_it(tmp_path, capsys):
    eight = {"hardware": Machine(processes=8), "flops": 2.6e18}
    seconds = Seconds(train=10_000.0, total=10_100.0)
    write(tmp_path, "a", "wmt14-en-de", 27.18, seconds=seconds, **eight)
    write(tmp_path, "b", "wmt14-en-de", None, seconds=seconds, **eight)
    write(tmp_path, "c", "files", 99.0, seconds=seconds, **eight)  # a text of that name, but whose?
    assert main(["table", "--table2", "--out", str(tmp_path), "--format", "json"]) == 0
    ours = [row for row in json.loads(capsys.readouterr().out)["rows"] if row["sacrebleu"]]
    assert [(row["bleu"], row["flops"], row["sacrebleu"]["en-de"], row["counted"]) for row in ours] == [
        ({"en-de": 27.18}, {}, 26.71, 2.6e18),
        ({}, {}, 26.71, 2.6e18),
    ]
    assert main(["table", "--table2", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    first = next(line.split() for line in text.splitlines() if "seed 3" in line)
    assert first[-3:] == ["27.18", "26.71", "2.6e+18"]
    assert "adds it" in text
    assert main(["table", "mine", "--table2"]) == 2
