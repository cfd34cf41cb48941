"""`work` on a study whose launcher adds runs in rounds."""

import threading
import time
from pathlib import Path

import pytest

from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.storages import join
from lightning_tfm.queue.storages.backends import find_storage
from lightning_tfm.study.cell import Cell


def test_who_has_joined_waits_while_more_runs_may_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(join, "MORE_EVERY", 0.01)
    launcher = Queue("s", find_storage("", tmp_path))
    helper = Queue("s", find_storage("", tmp_path), create=False)
    assert not join._awaits_more(helper)  # a study without rounds
    assert not capsys.readouterr().err

    def after_a_while(act) -> float:
        begin = time.monotonic()
        threading.Timer(0.3, act).start()
        awaited.append(join._awaits_more(helper))
        return time.monotonic() - begin

    awaited: list[bool] = []
    launcher.note(join.MORE, True)
    assert after_a_while(lambda: launcher.enqueue([Cell("base", 1, "0" * 64, 1.0)])) >= 0.3
    launcher.finish(launcher.claim(), 1.0)
    assert after_a_while(lambda: launcher.note(join.MORE, False)) >= 0.3
    assert awaited == [True, False]
    said = "s: waiting for the runs of the next interim analysis; Ctrl-C leaves\n"
    assert capsys.readouterr().err == said * 2
