"""The report on loopback: served there alone, made once for each state of the records, anew when one changes."""

import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from lightning_tfm.report.serve import Live, make_server, version
from tests.report.synthetic import Generator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    found = Generator(tmp_path_factory.mktemp("r"), ["base", "A-h1"], [1, 2])
    found.write_all(skip=[("A-h1", 2)])
    return found


def get(address: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.read().decode()


def test_page_is_made_once_for_each_state_and_to_no_other_host(made):
    asked = []

    def render(now):
        asked.append(now)
        return f"page {now}"

    server = make_server(Live(render, lambda: version(made.study.name, made.root)), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert server.server_address[0] == "127.0.0.1"
        address = f"http://127.0.0.1:{server.server_address[1]}"
        first = get(f"{address}/version")
        assert get(f"{address}/") == get(f"{address}/") == f"page {first}"
        made.write(made.study.rows[1], 2, 0.1)
        second = get(f"{address}/version")
        assert second != first and get(f"{address}/") == f"page {second}"
        assert asked == [first, second]
        for path, host, code in (
            ("/study.json", "127.0.0.1:1", 404),
            ("/../x", "localhost:1", 404),
            ("/", "evil", 403),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(address + path, Host=host)
            assert refused.value.code == code
            refused.value.close()
    finally:
        server.shutdown()
        server.server_close()


def test_verb_serves_a_page_that_asks_for_its_version_and_ends_on_ctrl_c(made):
    argv = ["report", "made", "--out", str(made.root), "--serve", "--port", "0"]
    served = subprocess.Popen(
        [sys.executable, "-m", "lightning_tfm.cli.main", *argv],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    try:
        address = served.stdout.readline().split()[0]
        page = get(address)
        now = get(f"{address}version")
        assert f'data-live="1" data-version="{now}"' in page and "connect-src 'self'" in page
        argv[-1] = address.rstrip("/").rpartition(":")[2]  # a port that is taken
        second = subprocess.run(
            [sys.executable, "-m", "lightning_tfm.cli.main", *argv], cwd=ROOT, capture_output=True, text=True
        )
        assert second.returncode == 2 and f"--port={argv[-1]}" in second.stderr
        served.send_signal(signal.SIGINT)
        assert served.wait(30) == 130
    finally:
        served.kill()
        served.wait()
        served.stdout.close()
