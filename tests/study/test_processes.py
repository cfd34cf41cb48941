"""What the launcher knows of the processes below it."""

import subprocess
import threading

from lightning_tfm.study.processes import children


def test_children_are_seen_whatever_threads_end_meanwhile() -> None:
    """A thread's children pass to another thread when it ends, and its folder below /proc is gone."""
    over = threading.Event()

    def end_threads_without_pause() -> None:
        while not over.is_set():
            threads = [threading.Thread(target=int) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    others = [threading.Thread(target=end_threads_without_pause) for _ in range(2)]
    started: list[subprocess.Popen] = []
    before = children()
    try:
        for thread in others:
            thread.start()
        for _ in range(10):
            starter = threading.Thread(target=lambda: started.append(subprocess.Popen(["sleep", "600"])))
            starter.start()
            starter.join()
            for _ in range(100):
                assert children() - before == {process.pid for process in started}
    finally:
        over.set()
        for thread in others:
            thread.join()
        for process in started:
            process.kill()
            process.wait()
    assert children() == before
