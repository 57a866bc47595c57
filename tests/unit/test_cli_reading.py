"""`ls`, `show`, `tree`, `events`, `watch`, `doctor` and `db upgrade`, on a database alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from baton_actors.cli.app import execute
from baton_actors.commands import Spending
from baton_actors.testing import FakeChatServer, ScriptedModel
from tests.unit.drive import ROOT, Driver, spec
from tests.unit.stored import sqlite_url, store_tree

NO_CLUSTER = ("RAY_ADDRESS", "BATON_DATABASE_URL")


@pytest.fixture(autouse=True)
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty database, and no cluster anywhere."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("BATON_DATABASE_URL", sqlite_url(tmp_path))
    monkeypatch.chdir(tmp_path)
    return sqlite_url(tmp_path)


def finished() -> Driver:
    """A root of two children: one completed, one failed."""
    driver = Driver(goal="count 漢字 🙂")
    good, bad = driver.breakdown(ROOT, "good", spec("bad\x1b[2J"))
    driver.run(good, value={"n": 1})
    driver.start(bad)
    driver.fail(bad, error="no such file\nTraceback: long")
    driver.run(ROOT, value=["a", "ü"])
    return driver


def test_an_empty_database_lists_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert execute(["ls"]) == 0
    assert capsys.readouterr() == ("", "")


def test_trees_are_listed_a_line_each_and_unwrapped(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store_tree(url, Driver(goal="x" * 500 + "\x1b[31m"))
    assert execute(["ls"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out.startswith(f"{ROOT}  pending ")
    assert out.endswith("x" * 500 + "\N{REPLACEMENT CHARACTER}[31m\n")


def test_lists_are_filtered_by_status_and_by_who_waits(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    driver = Driver()
    _, asked = driver.breakdown(ROOT, "work", spec("ask", worker="human"))
    store_tree(url, driver)
    for arguments, ids in ((["--status", "spawned"], [ROOT]), (["--status", "failed"], []), (["--waiting"], [asked])):
        assert execute(["ls", "--json", *arguments]) == 0
        assert [baton["id"] for baton in json.loads(capsys.readouterr().out)] == ids


def test_one_baton_is_shown_root_or_child(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    driver = finished()
    store_tree(url, driver)
    for id in driver.tree.nodes:
        assert execute(["show", id, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == driver.baton(id).model_dump(mode="json")
        assert execute(["show", id]) == 0
        assert capsys.readouterr().out.splitlines()[0].split() == ["id", id]


def agents() -> Driver:
    """An agent that broke its task down, and one that did not."""
    driver = Driver(goal="all", worker="agent")
    driver.start()
    driver.checkpoint(kind="round", model="small", tokens_in=500, tokens_out=100)
    driver.checkpoint(kind="decision", broken_down=True, reason="two independent\nparts")
    driver.spawn(ROOT, "part", spec("other", worker="agent", model="large"), spent=Spending({"tokens_in": 500, "tokens_out": 100}, 1))
    part, other = driver.baton().children
    driver.start(part)
    driver.checkpoint(part, kind="decision", broken_down=False, reason="one round")
    driver.checkpoint(part, kind="round", model="\x1b[2Jsmall", tokens_in=12_000, tokens_out=345)
    usage = {"tokens_in": 12_000, "tokens_out": 345, "tokens_cached": 1_000, "cost": 0.0123}
    driver.complete(part, "1", spent=Spending(usage, 2))
    driver.start(other)
    return driver


def test_an_agent_is_shown_with_its_decision_its_model_and_what_it_used(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    driver = agents()
    store_tree(url, driver)
    shown = []
    for id in driver.tree.nodes:
        assert execute(["show", id]) == 0
        fields = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
        shown.append({name: fields.get(name) for name in ("decided", "model", "rounds", "usage")})
    assert shown == [
        {
            "decided": "broken down into parts (two independent parts)",
            "model": "small",
            "rounds": "1",
            "usage": "500 tokens in, 100 out",
        },
        {
            "decided": "not broken down (one round)",
            "model": "\N{REPLACEMENT CHARACTER}[2Jsmall",
            "rounds": "2",
            "usage": "12,000 tokens in (1,000 cached), 345 out, cost 0.0123",
        },
        {"decided": None, "model": "large", "rounds": None, "usage": None},
    ]


def test_a_tree_of_agents_tells_what_was_used(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    driver = agents()
    store_tree(url, driver)
    assert execute(["tree", ROOT]) == 0
    root, part, other = capsys.readouterr().out.splitlines()
    assert "  3 rounds  12.9k tokens  cost 0.0123  " in root
    assert "  2 rounds  12.3k tokens  bt_" in part
    assert "tokens" not in other


def test_what_is_shown_holds_no_control_characters(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    driver = finished()
    store_tree(url, driver)
    for id in driver.tree.nodes:
        for command in (["show", id], ["tree", id], ["tree", id, "--mermaid"]):
            assert execute(command) == 0
            assert not {char for char in capsys.readouterr().out if not char.isprintable()} - {"\n"}


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (Driver(held=True), "its release (it is held)"),
        (Driver(not_before=2**45), "its time, 3084-12-1"),
        (Driver(worker="human"), f"an answer: baton answer {ROOT} VALUE"),
        (Driver(), "a worker"),
    ],
)
def test_show_says_why_a_baton_waits(driver: Driver, reason: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store_tree(url, driver)
    execute(["show", ROOT])
    assert f"waits for    {reason}" in capsys.readouterr().out


def test_a_tree_is_text_with_ids_or_flat_json_from_any_of_its_batons(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    driver = finished()
    store_tree(url, driver)
    for id in driver.tree.nodes:
        assert execute(["tree", id, "--json"]) == 0
        wire = json.loads(capsys.readouterr().out)
        assert (wire["root_id"], wire["status"], wire["seq"]) == (ROOT, "completed", driver.tree.seq)
        assert [baton["id"] for baton in wire["batons"]] == list(driver.tree.nodes)
        assert execute(["tree", id]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == ["completed", "completed", "failed", "error:"]
        assert all(any(id in line for line in lines) for id in driver.tree.nodes)


def test_events_are_json_lines_after_a_cursor(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    driver = finished()
    store_tree(url, driver)
    for after in (0, 3, driver.tree.seq):
        assert execute(["events", ROOT, "--after", str(after), "--follow"]) == 0
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert events == [event.to_wire() for event in driver.log[after:]]


def test_a_cursor_beyond_the_end_is_refused_with_the_last_one(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    driver = finished()
    store_tree(url, driver)
    assert execute(["events", ROOT, "--after", "99"]) == 2
    assert capsys.readouterr().err == f"error: --after: 99 is beyond the end: the last event of {ROOT} is {driver.tree.seq}\n"


@pytest.mark.parametrize("command", ["show", "tree", "events", "watch", "cancel", "retry", "resume"])
def test_an_unknown_id_is_not_found_without_starting_anything(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([command, "bt_nope"]) == 1
    assert capsys.readouterr() == ("", "error: no baton bt_nope in this database; 'baton ls' lists what there is\n")


def test_watching_an_ended_tree_prints_its_result(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store_tree(url, finished())
    assert execute(["watch", ROOT]) == 0
    assert json.loads(capsys.readouterr().out) == ["a", "ü"]
    assert execute(["watch", ROOT, "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["id"], outcome["status"], outcome["batons"]) == (ROOT, "completed", {"completed": 2, "failed": 1})


def test_watching_a_cancelled_tree_exits_with_3(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    driver = Driver()
    driver.cancel(reason="changed my mind")
    store_tree(url, driver)
    assert execute(["watch", ROOT]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == f"error: baton {ROOT} was cancelled (changed my mind); 'baton retry {ROOT}' starts it again"


def test_watching_a_tree_that_nobody_works_on_says_so(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store_tree(url, Driver(), lease_ms=-1)
    assert execute(["watch", ROOT]) == 5
    assert f"'baton resume {ROOT}' finishes it" in capsys.readouterr().err


def test_watching_ends_after_the_timeout(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store_tree(url, Driver())
    assert execute(["watch", ROOT, "--timeout", "0"]) == 4
    assert f"baton {ROOT} has not ended within 0 s" in capsys.readouterr().err


def test_a_tree_in_another_programs_private_ray_is_not_changed_from_here(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store_tree(url, Driver())
    assert execute(["cancel", ROOT]) == 5
    assert "the private Ray of another command works on it" in capsys.readouterr().err


def test_a_database_that_cannot_be_used_is_one_line_and_exit_code_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("no database")
    for wrong in ("nonsense", "mysql://x/y", f"sqlite:///{tmp_path}/file", f"sqlite:///{tmp_path}/file/below.db"):
        assert execute(["ls", "--database-url", wrong]) == 5
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1


def test_the_database_of_a_command_stands_over_that_of_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_tree(f"sqlite:///{tmp_path}/other.db", Driver())
    assert execute(["ls", "--database-url", f"sqlite:///{tmp_path}/other.db"]) == 0
    assert capsys.readouterr().out.startswith(ROOT)


def test_upgrading_the_schema_twice_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert execute(["db", "upgrade", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["revision"]


def test_the_doctor_finds_a_healthy_place_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = [check["name"] for check in told["checks"]]
    assert names == ["python", "ray", "database", "schema", "writable", "unfinished trees", "disk", "cluster", "model"]
    assert told["ok"]


def test_the_doctor_names_a_remedy_for_each_fault(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    store_tree(url, Driver(), lease_ms=-1)
    assert execute(["doctor", "--json"]) == 1
    faults = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"] if not check["ok"]}
    assert faults.keys() == {"unfinished trees", "cluster"}
    assert ROOT in faults["unfinished trees"]["found"]
    assert "Connection refused" in faults["cluster"]["found"]
    assert all(check["remedy"] for check in faults.values())


def test_the_doctor_asks_for_the_model_that_an_agent_would_get(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def model() -> dict[str, Any]:
        execute(["doctor", "--json"])
        return next(check for check in json.loads(capsys.readouterr().out)["checks"] if check["name"] == "model")

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ScriptedModel() as scripted, FakeChatServer(scripted, listed=["qwen3"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        assert model()["found"] == f"qwen3 at {server.base_url}"
        monkeypatch.setenv("BATON_MODEL", "llama4")
        assert not model()["ok"]
        assert "has no model 'llama4'" in model()["remedy"]
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert "no model answers there" in model()["remedy"]


def test_the_doctor_never_shows_a_password(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr("baton_actors.cli.checking.PATIENCE", 0)
    assert execute(["doctor", "--database-url", "postgresql://me:secret@127.0.0.1:1/x"]) == 1
    out, err = capsys.readouterr()
    assert "secret" not in out + err
    assert "me" in out
