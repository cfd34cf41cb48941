"""What people see while it works: numbers of made-up records, an ETA that knows what is to come, and 80 columns."""

import io
import json
import os
import pty
import re
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lightning_tfm.cli.train import fit
from lightning_tfm.config import evaluation_hash
from lightning_tfm.queue import view
from lightning_tfm.queue.view import View, left_words, line, picture
from lightning_tfm.runs import outcome
from lightning_tfm.runs.folder import Attempt, RunFolder
from lightning_tfm.runs.record import Seconds
from lightning_tfm.study.cell import Cell
from lightning_tfm.study.rows import Fingerprints, RowData
from lightning_tfm.study.search import Search
from lightning_tfm.study.space import Parameter
from lightning_tfm.watch.study_state import Best, CellState, Watch
from lightning_tfm.watch.time_left import Left
from tests.helpers.studies import BASE, SPACE, ablation, leave, own_row
from tests.helpers.studies import search as made_search
from tests.helpers.waiting import wait_for


def cell(number: int, cost: float = 1.0, **change: object) -> Cell:
    return Cell(f"r{number}", 1, f"{number:03d}".ljust(64, "0"), cost, change)


def state(of: Cell, name: str, seconds: float | None = None, value: float | None = None) -> CellState:
    return CellState(of, name, "", None, 1, seconds, () if value is None else (value,))


def finished(root: Path, number: int, total: float, cost: float = 1.0, decode: float = 2.0) -> CellState:
    """A finished run of `total` seconds; Optuna's clock (1 s) is that of a try that found it there."""
    attempt = RunFolder(root, cell(number).training_hash).claim()
    seconds = Seconds(train=total - decode, validate=0.0, data=0.0, decode=decode, total=total)
    value = {"ppl": 3.0 + number, "bleu": 3.0 + number, "evaluation_hash": evaluation_hash(BASE, "")}
    leave(attempt, seconds=seconds, **value)
    attempt.release()
    return state(cell(number, cost), "finished", 1.0, 3.0 + number)


def running(*args: Any, cost: float = 1.0, **more: Any) -> CellState:
    """A run that is alive."""
    begun(*args, **more)
    return state(cell(args[1], cost), "running")


def begun(root: Path, number: int, step: int, steps: int, phase: str = "train") -> Attempt:
    """A run of which every step took 0.1 s."""
    attempt = RunFolder(root, cell(number).training_hash).claim()
    for at in range(10, step + 1, 10):
        attempt.append_metrics({"step": at, "loss": 5.0 - at / 100, "seconds": at / 10})
        attempt.append_metrics({"step": at, "dev_ppl": 9.0 + abs(50 - at) / 10})
    attempt.write_progress(step, steps, 5210.0 if phase == "train" else 0.0, phase)
    return attempt


def search(**changes: object) -> Search:
    unnamed = {"prints": Fingerprints("", ""), "objectives": {"dev/bleu": "maximize"}, "space": SPACE[:1]}
    return made_search(**unnamed | changes)


def test_a_run_shows_its_loss_its_perplexity_and_its_best_and_scoring_counts(tmp_path: Path) -> None:
    watch = Watch(tmp_path, 1)
    r = watch.look([running(tmp_path, 0, 60, 100)]).running[0][1]
    assert (r.step, r.loss, r.ppl, r.best_ppl, r.tokens_per_second) == (60, 4.4, 10.0, 9.0, 5210.0)
    assert r.left is not None and r.left.at_least and r.left.seconds == pytest.approx(4.0, abs=0.5)
    assert left_words(r.left) == "over 4 s left"
    assert left_words(Left(0.2, at_least=True)) == "", "more than nothing says nothing"
    assert left_words(Left(0.2)) == "0 s left"
    done = finished(tmp_path, 1, 30.0, decode=20.0)
    r = watch.look([running(tmp_path, 2, 60, 100), done]).running[0][1]
    assert r.left is not None and not r.left.at_least and r.left.seconds == pytest.approx(24.0, abs=0.5)


def test_what_is_new_of_a_curve_is_read_and_one_that_was_cut_back_from_its_start(tmp_path: Path) -> None:
    watch, attempt, first = Watch(tmp_path, 1), begun(tmp_path, 0, 60, 100), state(cell(0), "running")
    assert watch.look([first]).running[0][1].loss == 4.4
    folder = RunFolder(tmp_path, first.cell.training_hash)
    with folder.metrics.open("a") as file:
        file.write('{"step": 70, "loss": 4.3}\n{"step": 80, "lo')
    assert watch.look([first]).running[0][1].loss == 4.3
    attempt.truncate_metrics(20)
    r = watch.look([first]).running[0][1]
    assert (r.loss, r.best_ppl) == (4.8, 12.0)


def test_before_anything_is_known_nothing_is_said_and_scoring_has_no_speed(tmp_path: Path) -> None:
    fresh = state(cell(0), "running")
    overview = Watch(tmp_path, 1).look([fresh, state(cell(1), "waiting")])
    assert overview.left is None and overview.running[0][1].left is None
    assert line("s", overview) == "s: 0 finished, 1 running, 1 waiting, 0 failed | r0/1 starting"
    overview = Watch(tmp_path, 1).look([running(tmp_path, 2, 100, 100, "translate val")])
    said = line("s", overview)
    assert "tok/s" not in said and "0:00" not in said and "100/100 translate val" in said


def test_a_run_whose_next_attempt_has_not_begun_does_not_say_how_the_last_one_ended(tmp_path: Path) -> None:
    attempt = begun(tmp_path, 0, 60, 100)
    attempt.write_outcome("interrupted", "stopped by SIGINT after a checkpoint", 60)
    attempt.release()
    said = line("s", Watch(tmp_path, 1).look([state(cell(0), "running")]))
    assert "60/100 starting" in said and "SIGINT" not in said


def test_a_run_that_goes_on_after_a_night_is_timed_from_where_it_went_on(tmp_path: Path) -> None:
    open_cell = state(cell(0), "running")
    begun(tmp_path, 0, 60, 100).release()
    folder, watch = RunFolder(tmp_path, open_cell.cell.training_hash), Watch(tmp_path, 1)
    night = json.loads(folder.progress.read_text()) | {"time": time.time() - 40_000, "phase": "translate val"}
    attempt = folder.claim()
    folder.progress.write_text(json.dumps(night))
    r = watch.look([open_cell]).running[0][1]
    assert (r.step, r.phase, r.tokens_per_second) == (60, "starting", None)
    assert r.left is not None and r.left.seconds == pytest.approx(4.0, abs=0.5), "by its curve: 0.1 s a step"
    for step in (55, 80):  # it went back to its checkpoint
        attempt.write_progress(step, 100, 5210.0, "train")
        r = watch.look([open_cell]).running[0][1]
        assert r.phase == "train" and r.left is not None
        assert r.left.seconds == pytest.approx(0.1 * (100 - step)), "by its curve, not by the clock"


def test_of_a_trial_with_several_seeds_the_one_at_work_is_shown(tmp_path: Path) -> None:
    finished(tmp_path, 1, 60.0)
    begun(tmp_path, 2, 40, 100)
    trial = replace(cell(1), more=((2, cell(2).training_hash),))
    ((_, run),) = Watch(tmp_path).look([state(trial, "running")]).running
    assert (run.step, run.steps) == (40, 100)


def test_a_trial_that_was_stopped_early_stays_so_while_another_study_trains_its_run(tmp_path: Path) -> None:
    begun(tmp_path, 1, 40, 100)
    assert Watch(tmp_path).look([state(cell(1), "waiting")]).cells[0].state == "running"
    (stopped,) = Watch(tmp_path).look([state(cell(1), "stopped early")]).cells
    assert stopped.state == "stopped early" and stopped.run is None


@pytest.mark.parametrize("word", ["interrupted", "waiting"])
def test_a_run_that_is_stopped_keeps_its_share_and_its_time_as_far_as_its_checkpoint(tmp_path: Path, word: str) -> None:
    """After Ctrl-C the bar fell from 23 to 17 %."""
    states = [finished(tmp_path, 0, 10.0), state(cell(1), "running"), state(cell(2), "waiting")]
    attempt = begun(tmp_path, 1, 60, 100)
    before = Watch(tmp_path, 1).look(states)
    for step in (40, 60):
        attempt.write(attempt.folder.checkpoints / f"step-{step:08d}.ckpt", b"")
    attempt.release()
    after = Watch(tmp_path, 1).look([states[0], state(cell(1), word), states[2]])
    assert before.share == after.share == pytest.approx(1.6 / 3)
    assert after.left is not None and after.left.seconds == pytest.approx(14.0)
    (attempt.folder.checkpoints / "step-00000060.ckpt").unlink()
    killed = Watch(tmp_path, 1).look([states[0], state(cell(1), word), states[2]])
    assert killed.share == pytest.approx(1.4 / 3), "what came after the last checkpoint is lost"


def test_time_left_counts_what_waits_by_its_cost_and_what_finished_runs_took(tmp_path: Path) -> None:
    states = [finished(tmp_path, 0, 10.0), finished(tmp_path, 1, 30.0, cost=3.0)]
    states += [state(cell(n, cost), "waiting") for n, cost in ((2, 1.0), (3, 2.0), (4, 3.0))]
    look = Watch(tmp_path, 1).look(states)
    assert look.left == Left(pytest.approx(60.0), False) and look.best == Best("r0", 1, "dev/ppl", 3.0)
    assert look.share == pytest.approx(0.4)
    two = Watch(tmp_path, 2).look(states).left
    assert two is not None and two.seconds == pytest.approx(30.0), "30 and 20 + 10"


def test_small_models_take_more_than_their_share_of_arithmetic(tmp_path: Path) -> None:
    states = [finished(tmp_path, n, 20.0 + 10.0 * cost, cost) for n, cost in enumerate((1.0, 2.0, 4.0))]
    left = Watch(tmp_path, 1).look([*states, state(cell(9, 10.0), "waiting")]).left
    assert left is not None and left.seconds == pytest.approx(120.0)


def test_a_run_that_was_there_already_does_not_make_the_others_look_instant(tmp_path: Path) -> None:
    left = Watch(tmp_path, 1).look([finished(tmp_path, 0, 100.0), state(cell(1), "waiting")]).left
    assert left is not None and left.seconds == pytest.approx(100.0)


def test_trials_that_are_not_proposed_yet_count_as_those_that_ended(tmp_path: Path) -> None:
    states = [finished(tmp_path, 0, 30.0), state(cell(1), "stopped early", 10.0)]
    overview = Watch(tmp_path, 1, search()).look(states)
    assert overview.coming == 8 and overview.left is not None and overview.left.seconds == pytest.approx(8 * 20.0)
    assert overview.best == Best("r0", 1, "dev/bleu", 3.0)
    assert line("s", overview).startswith("s: 1 finished, 0 running, 0 waiting, 0 failed, 1 stopped early, 8 to be pro")
    rates = Parameter("training.lr_factor", "categorical", [0.3, 0.8])
    for space, coming in (([rates], 1), ([SPACE[3]], 0)):  # two points beside base; two, of which base is one
        assert Watch(tmp_path, 1, search(space=space)).look(states).coming == coming
    two = search(objectives={"dev/ppl": "minimize", "seconds": "minimize"})
    assert Watch(tmp_path, 1, two).look(states).best is None


def shown(name: str, overview, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(picture(name, overview))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_all_of_it_within_its_width(tmp_path: Path, width: int) -> None:
    long = cell(1, **{"training.lr_factor": 0.731234, "model.P_drop": 0.1, "model.N": 4, "model.positions": "learned"})
    states = [running(tmp_path, 0, 60, 100), finished(tmp_path, 5, 30.0)]
    states.append(replace(running(tmp_path, 1, 100, 100, "translate val"), cell=long))
    states.append(replace(running(tmp_path, 2, 10, 100), cell=replace(cell(2), row="warmup=4000, norm=sandwich, d=4")))
    lines = shown("found", Watch(tmp_path, 3, search()).look(states), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    said = ["dev PPL", "4.400", "5,210", "scoring", "lr_factor=0.731, P_drop=0.1, N=4", "best: dev/bleu 8 (r5/1)"]
    assert [words for words in (*said, " left", "3 running", "6 to be proposed") if words not in text] == [], text


def test_a_log_gets_lines_ever_more_seldom(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    log = View("s", io.StringIO())
    assert log.due()
    for at, every in ((0.0, 10.0), (600.0, 30.0), (3600.0, 180.0), (1e6, 300.0)):
        log._shown = at
        for share, due in ((0.9, False), (1.1, True)):
            now[0] = at + every * share
            assert log.due() == due


def test_a_line_is_written_in_one_piece_so_that_no_other_process_s_is_glued_to_it(tmp_path: Path, monkeypatch) -> None:
    class Unbuffered(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    written: list[str] = []
    View("", Unbuffered()).show(Watch(tmp_path, 1).look([state(cell(0), "running")]))
    monkeypatch.setattr(sys, "stderr", Unbuffered())
    outcome.say("lightning-tfm: wrong")
    assert written == ["starting\n", "lightning-tfm: wrong\n"]


def test_what_a_run_says_stands_above_its_picture_on_a_terminal(tmp_path: Path) -> None:
    process, terminal = pty.fork()
    if not process:
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # the terminal, not pytest's
        try:
            with fit._watching(tmp_path, cell(0)):
                wait_for((tmp_path / "drawn").exists)
                print("lightning-tfm: wrong", file=sys.stderr)
            os._exit(0)
        finally:
            os._exit(1)
    told = b""
    with suppress(OSError):  # the terminal is closed
        while got := os.read(terminal, 1 << 12):
            told += got
            if b"starting" in told:
                (tmp_path / "drawn").touch()
    assert os.waitpid(process, 0)[1] == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", told.decode()).splitlines()
    assert "lightning-tfm: wrong" in lines and any("starting" in text for text in lines)


def test_a_run_alone_is_a_line_without_counts(tmp_path: Path) -> None:
    overview = Watch(tmp_path, 1).look([running(tmp_path, 0, 60, 100)])
    assert line("", overview).startswith("60/100, loss 4.400, dev PPL 10 (best 9), 5,210 tok/s, over 4 s left")
    assert any("60/100" in text for text in shown("", overview, 80)) and view.duration(3725) == "1:02 h"


def test_perplexities_of_different_pieces_have_no_best(tmp_path: Path) -> None:
    prints = Fingerprints("t", "")
    data = {"data.vocab_size=9": RowData(Fingerprints("u", "e"), 9, "s")}
    study = ablation([own_row("v", {"data.vocab_size": 9})], base=BASE, prints=prints, V=1, data=data)
    states = [finished(tmp_path, 0, 10.0)]
    assert Watch(tmp_path, 1, study).look(states).best is None
    assert Watch(tmp_path, 1, replace(study, rows=[], data={})).look(states).best is not None
