"""The dashboard answers its own pages on loopback and nobody else, changes no byte, and sends what is new."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lightning_tfm.dashboard.app import HOST
from lightning_tfm.study.rows import apply
from lightning_tfm.study.study_file import save
from tests.helpers.studies import Folder, own_row
from tests.report.pages.test_page import HOSTILE, Parser


def names(served) -> list[str]:
    return sorted(served.board.look().runs)


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    """Path -> time of change and content of all that lies below `root`, folders too."""
    paths = [root, *root.rglob("*")]
    return {str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in paths}


def addresses(served) -> list[str]:
    runs = names(served)
    found = ["/", "/news?since=0", f"/news?since={'9' * 5000}", "/runs?sort=-ppl", "/curves?measure=loss"]
    found += ["/study/table", "/study/table/news", "/study/search", "/study/broken"]
    found += ["/curves?where=study+%3D+%27table%27&by=h", "/curves/news?where=study+%3D+%27table%27"]
    found += ["/runs?where=ppl+%3C+9&columns=d_model,study"]
    found += [f"/run/{name}" for name in runs] + [f"/run/{name}/news" for name in runs]
    pair = f"run={runs[0]}&run={runs[1]}&run={runs[2]}"
    return [*found, f"/diff?{pair}", f"/diff/news?{pair}"]


def test_all_pages_are_whole_and_not_a_byte_of_the_folder_changes(served, made):
    before = everything(made.root)
    for address in addresses(served):
        answer = served.get(address)
        assert answer.status == 200, address
        if answer.headers["content-type"].startswith("text/html"):
            parsed = Parser(answer.text)
            assert parsed.open == [] and all(link.startswith(("/", "#", "data:")) for link in parsed.links), address
        assert "content-security-policy" in answer.headers or "text/html" not in answer.headers["content-type"]
    assert served.get("/nothing").headers["content-security-policy"].startswith("default-src 'none'")
    assert served.get("/study/table/report").status in (200, 503)
    assert everything(made.root) == before


FOREIGN = ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "[::1]", "", "-"]
LOOPBACK = ["127.0.0.1", "localhost", "localhost:1234"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *(({"Host": host}, 400) for host in FOREIGN),
        *(({"Host": host}, 200) for host in LOOPBACK),
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
def test_loopback_is_answered_under_its_names_and_other_hosts_and_origins_are_refused(served, headers, status):
    assert served.get("/news?since=0", **headers).status == status


def test_with_a_token_only_who_has_the_address_is_answered(serve, made):
    served = serve(made.root, token="secret")
    for path in ("/", "/?token=other", "/news?since=0", "/static/x.css", "/runs?find=x"):
        answer = served.get(path)
        assert answer.status == 403 and "token is missing" in answer.text
    assert served.get("/", Cookie=f"lightning_tfm_{served.port}=other").status == 403
    answer = served.get("/study/table?token=secret&x=1")
    assert answer.status == 303 and answer.headers["location"] == "/study/table?x=1"
    assert served.get("//evil.example/?token=secret").headers["location"] == "/evil.example/", "here, nowhere else"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert served.get("/study/table", Cookie=cookie.partition(";")[0]).status == 200


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
    assert served.get("/", method, Origin=served.url).status == 405


NOT_LISTED = [
    "/../secret.txt", "/run/../secret.txt", "/run/..%2fsecret.txt", "/run/%2e%2e", "/study/..%2f..%2fetc",
    "/static/..%2f..%2fapp.py", "/run/{run}/file?path=experiment.json", "/run/{run}/..%2f..%2fsecret.txt", "/run/none",
    "/study/none", "/study/none/report", "/diff", "/diff?run={run}", "/diff?run={run}&run=none",
    "/diff?study=table&study=broken", "/compare?study=table", "/compare?study=table&study=none", "/nothing",
]  # fmt: skip


@pytest.mark.parametrize("path", NOT_LISTED)
def test_what_is_not_listed_is_not_found(served, path):
    for run in names(served):
        answer = served.get(path.replace("{run}", run))
        assert answer.status == 404 and "secret" not in answer.text.replace("secret.txt", "")


def test_who_has_the_newest_state_is_told_so_and_others_get_what_is_new(serve, folder, tmp_path):
    study = folder.table("table", ["base", "A-h1"], seeds=[1, 2])
    running = folder.run(apply(study.base, study.rows[0], 1), "running")
    served = serve(tmp_path)
    name = running.path.name
    tags = {path: served.get(path).json["tag"] for path in ("/news?since=0", f"/run/{name}/news", "/study/table/news")}
    for path, tag in tags.items():
        again = served.get(path, If_None_Match=f'"{tag}"')
        assert (again.status, again.text) == (304, "")
    with running.metrics.open("a") as file:
        file.write('{"step": 1999, "dev_ppl": 1.25}\n')
    folder.run(apply(study.base, study.rows[1], 1))
    for path, tag in tags.items():
        assert served.get(path, If_None_Match=f'"{tag}"').status == 200
    news = served.get(f"/news?since={tags['/news?since=0']}").json
    assert news["parts"]["runs"].count('<tr id="run-') == 2 and 'data-v="1.25"' in news["parts"]["runs"]
    found = served.get(f"/news?since={tags['/news?since=0']}&state=running").json
    assert found["parts"]["runs"].count('<tr id="run-') == 1, "of those that are looked at"
    assert "runs" not in served.get("/news?where=d_modl+%3E+3").json["parts"]
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


def test_hostile_words_in_every_record_are_harmless(serve, tmp_path):
    made = Folder(tmp_path)
    study = made.table("table", ["base"], seeds=[1])
    mine = own_row(f"mine {HOSTILE}", {"model.h": 4}, f"group {HOSTILE}")
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
