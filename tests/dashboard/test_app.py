"""The dashboard answers its own pages on loopback and nobody else, changes no byte, and sends what is new."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.dashboard.serve import HOST
from lightning_tfm.study.rows import Paper, Row, all_rows, apply
from lightning_tfm.study.study import save
from lightning_tfm.watch.run_state import STATES
from tests.dashboard.made import BASE, Folder
from tests.report.test_page import HOSTILE, Parser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    found = Folder(tmp_path_factory.mktemp("results"))
    study = found.table("table", ["base", "A-h1", "A-h4"], seeds=[1, 2, 3])
    found.fill(study, STATES)
    search = found.search("search", 5)
    for number, state in enumerate(["finished", "stopped early", "running"]):
        found.trial(search, number, state, training__lr_factor=0.5 + number)
    broken = found.root / "studies" / "broken"
    broken.mkdir()
    (broken / "study.json").write_text("{")
    found.run(replace(BASE, training=replace(BASE.training, seed=77)))
    (found.root / "runs" / "0123" / "attempts").mkdir(parents=True)
    secret = found.root / "secret.txt"
    secret.write_text("secret")
    (next(iter((found.root / "runs").iterdir())) / "link.txt").symlink_to(secret)
    return found


@pytest.fixture(scope="module")
def served(serve, made):
    return serve(made.root)


def names(served) -> list[str]:
    return sorted(served.board.look().runs)


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    """Path -> time of change and content of all that lies below `root`, folders too."""
    paths = [root, *root.rglob("*")]
    return {str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in paths}


def addresses(served) -> list[str]:
    runs = names(served)
    found = ["/", "/news?since=0", "/study/table", "/study/table/news", "/study/search", "/study/broken"]
    found += [f"/run/{name}" for name in runs] + [f"/run/{name}/news" for name in runs]
    pair = f"run={runs[0]}&run={runs[1]}&run={runs[2]}"
    found += [f"/diff?{pair}", f"/diff/news?{pair}", "/diff?study=table&study=search"]
    return [*found, *(f"/run/{name}/file?path=experiment.json" for name in runs[:1])]


def test_all_pages_are_whole_and_not_a_byte_of_the_folder_changes(served, made):
    before = everything(made.root)
    for address in addresses(served):
        answer = served.get(address)
        assert answer.status == (404 if address.endswith("0123/file?path=experiment.json") else 200), address
        if answer.headers["content-type"].startswith("text/html"):
            parsed = Parser(answer.text)
            assert parsed.open == [] and all(link.startswith(("/", "#", "data:")) for link in parsed.links), address
    assert served.get("/study/table/report").status in (200, 503)
    assert everything(made.root) == before


def test_a_perplexity_that_overflowed_is_shown(serve, tmp_path):
    made = Folder(tmp_path)
    study = made.table("lost", ["base", "A-h1"], seeds=[1, 2])
    made.fill(study)
    lost = made.run(apply(study.base, study.rows[1], 2))
    plain = json.loads(lost.result.read_text())
    plain["scores"]["dev"] |= {"ppl": "Infinity", "nll": 812_000.0}
    lost.result.write_text(json.dumps(plain))
    served = serve(made.root)
    assert served.get("/study/lost").text.count(">∞<") == 2  # its cell, and the mean of its row
    assert "∞" in served.get(f"/run/{lost.path.name}").text and served.get("/").status == 200


def test_the_index_shows_every_run_in_its_state_and_names_a_damaged_study(served):
    page = served.get("/").text
    assert len(re.findall(r'<tr id="run-', page)) == len(names(served))
    for state in STATES:
        assert f'data-state="{state}"' in page
    assert "not a study definition" in page and 'href="/study/table"' in page


def test_a_study_says_sizes_as_they_were_trained_and_which_row_is_another(serve, tmp_path):
    folder, known = Folder(tmp_path), all_rows()
    rows = [known["base"], known["A-h1"], replace(known["base"], name="again", change={"model.h": 8})]
    folder.fill(save(replace(folder.table("sizes", ["base", "A-h1"]), rows=rows), tmp_path))
    page = serve(tmp_path).get("/study/sizes").text
    assert "d_k 64" in page and "d_k 512" not in page and "is base" in page


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "[::1]", "", "-"])
def test_another_host_is_refused(served, host):
    assert served.get("/", Host=host).status == 400


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:1234"])
def test_loopback_may_ask_under_its_names(served, host):
    assert served.get("/", Host=host).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}, 200),
        ({"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}, 200),
        ({"Sec_Fetch_Site": "none", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}, 200),
    ],
)
def test_pages_of_other_origins_are_refused(served, headers, status):
    assert served.get("/news?since=0", **headers).status == status


def test_its_own_origin_is_welcome_and_answers_forbid_frames_and_foreign_scripts(served):
    answer = served.get("/", Origin=served.url)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers and "server" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_looking_is_allowed(served, method):
    assert served.get("/", method).status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/run/../secret.txt",
        "/run/..%2fsecret.txt",
        "/run/%2e%2e",
        "/study/..%2f..%2fetc",
        "/static/..%2f..%2fapp.py",
        "/run/{run}/file?path=../../secret.txt",
        "/run/{run}/file?path=..%2f..%2fsecret.txt",
        "/run/{run}/file?path=/etc/passwd",
        "/run/{run}/file?path=link.txt",
        "/run/{run}/file?path=attempts/../experiment.json",
        "/run/{run}/file?path=",
        "/run/{run}/file",
        "/run/../file?path=secret.txt",
        "/run/none",
        "/study/none",
        "/study/none/report",
        "/diff",
        "/diff?run={run}",
        "/diff?run={run}&run=none",
        "/diff?run={run}&study=table",
        "/compare?study=table",
        "/compare?study=table&study=none",
        "/nothing",
    ],
)
def test_what_is_not_listed_is_not_found(served, path):
    for run in names(served):
        answer = served.get(path.replace("{run}", run))
        assert answer.status == 404 and "secret" not in answer.text.replace("secret.txt", "")


def test_who_has_the_newest_state_is_told_so_and_others_get_what_is_new(serve, tmp_path):
    made = Folder(tmp_path)
    study = made.table("table", ["base", "A-h1"], seeds=[1, 2])
    running = made.run(apply(study.base, study.rows[0], 1), "running")
    served = serve(tmp_path)
    name = running.path.name
    tags = {path: served.get(path).json["tag"] for path in ("/news?since=0", f"/run/{name}/news", "/study/table/news")}
    for path, tag in tags.items():
        again = served.get(path, If_None_Match=f'"{tag}"')
        assert (again.status, again.text) == (304, "")
    with running.metrics.open("a") as file:
        file.write('{"step": 1999, "dev_ppl": 1.25}\n')
    made.run(apply(study.base, study.rows[1], 1))
    for path, tag in tags.items():
        assert served.get(path, If_None_Match=f'"{tag}"').status == 200
    news = served.get(f"/news?since={tags['/news?since=0']}").json
    assert len(news["rows"]["table-runs"]["rows"]) == 2 == news["rows"]["table-runs"]["count"]
    assert len(news["rows"]["table-studies"]["rows"]) == 1
    chart = served.get(f"/run/{name}/news").json["charts"]["chart-dev"]
    assert chart["series"][0]["points"][-1] == [1999, 1.25]
    assert "1.25" in served.get("/study/table").text


def test_a_style_sheet_may_be_kept_for_ever_under_its_own_name(served):
    style = re.search(r'href="(/static/[^"]+\.css)"', served.get("/").text)
    script = re.search(r'src="(/static/[^"]+\.js)"', served.get("/").text)
    for found, kind in ((style, "text/css"), (script, "text/javascript")):
        answer = served.get(found.group(1))
        assert answer.headers["content-type"].startswith(kind) and "immutable" in answer.headers["cache-control"]


def test_without_text_no_sentence_is_sent(serve, made, served):
    said = "TORROR|torror|venla|narva"
    quiet = serve(made.root, texts=False)
    finished = [name for name, view in served.board.look().runs.items() if view.state == "finished"]
    pages = [*(f"/run/{name}" for name in finished), f"/diff?run={finished[0]}&run={finished[1]}"]
    assert all(re.search(said, served.get(page).text) for page in pages)
    assert not any(re.search(said, quiet.get(page).text) for page in pages)
    assert quiet.get(f"/run/{finished[0]}/file?path=samples.jsonl").status == 404


def test_hostile_words_in_every_record_are_harmless(serve, tmp_path):
    made = Folder(tmp_path)
    study = made.table("table", ["base"], seeds=[1])
    mine = Row(f"mine {HOSTILE}", f"group {HOSTILE}", {"model.h": 4}, Paper(None, None, None), "here:1")
    study = save(replace(study, rows=[*study.rows, mine]), tmp_path)
    for row, state in zip(study.rows, ("failed", "running"), strict=True):
        folder = made.run(apply(study.base, row, 1), state)
        for file in folder.path.rglob("*"):
            if file.suffix in (".json", ".jsonl", ".txt"):
                text = file.read_text()
                for word in ("RuntimeError", "elsewhere", "train", "TORROR", "torror", "builtin"):
                    text = text.replace(f'"{word}"', f'"{HOSTILE}"').replace(f" {word} ", f" {HOSTILE} ")
                file.write_text(text.replace("RuntimeError", HOSTILE.replace('"', '\\"')))
    served = serve(tmp_path)
    runs = names(served)
    for address in ("/", "/study/table", *(f"/run/{name}" for name in runs), f"/diff?run={runs[0]}&run={runs[1]}"):
        page = served.get(address).text
        parsed = Parser(page)
        assert parsed.open == [] and "<script>alert" not in page and HOSTILE not in page
        assert all(link.startswith(("/", "#", "data:")) for link in parsed.links)


def test_it_listens_on_loopback_alone(served):
    assert HOST == "127.0.0.1"
    table = Path(f"/proc/{os.getpid()}/net/tcp").read_text()
    here = [line.split()[1] for line in table.splitlines()[1:] if line.split()[1].endswith(f":{served.port:04X}")]
    assert here and all(address.startswith("0100007F:") for address in here)
