"""The command line as a user runs it: processes of their own, in a folder of theirs, on a SQLite file.

A `baton run` starts a private Ray, which takes seconds; so several questions are asked of one run.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import ray

import baton_actors
from baton_actors.store import Store
from baton_actors.store.records import TreeRow
from tests.unit.drive import ROOT, Driver
from tests.unit.stored import store_tree

from .conftest import HERE, end_actors

COMMAND = [sys.executable, "-m", "baton_actors.cli"]
#: Runs the command as its console script does, and says on standard error whether that loaded Ray.
WATCHED = [
    sys.executable,
    "-c",
    "import atexit, sys; atexit.register(lambda: print('ray' in sys.modules, file=sys.stderr)); from baton_actors.cli import main; main()",
]
#: Characters that steer a terminal.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x9b]")
FINE = ["--worker", "workers:fine"]
DIGEST = "baton_actors.examples.digest:digest"

WORKERS = """
import asyncio
from pathlib import Path

from baton_actors import HandedOver

print("imported")
number = 3

def fine(baton, ctx):
    return 1

def lonely(baton):
    return 1

async def ticking(baton, ctx):
    # hands over again and again until there is an answer
    answer = Path(baton.context["file"])
    if answer.exists():
        return answer.read_text()
    await asyncio.sleep(0.1)
    return HandedOver((ctx.state or 0) + 1)
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Running:
    """A command that has not ended. What it says on standard error can be waited for."""

    process: subprocess.Popen[str]
    out: Path
    said: list[str] = field(default_factory=list)

    def says(self, *starts: str) -> str:
        """The next line that begins so; read until then."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith(starts):
                return line
        pytest.fail(f"it never said {starts}: {self.said}")

    def interrupt(self) -> None:
        """Ctrl-C: a terminal sends the signal to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> Done:
        assert self.process.stderr is not None
        with self.process.stderr as rest:
            self.said.extend(rest)
        return Done(self.process.wait(), self.out.read_text(), "".join(self.said))


@dataclass(frozen=True)
class Shell:
    """A user's terminal: a folder, an environment, a database."""

    folder: Path
    environment: dict[str, str]

    def but(self, **environment: str) -> "Shell":
        return Shell(self.folder, {**self.environment, **environment})

    def starts(self, *arguments: str, command: list[str] = COMMAND) -> Running:
        handle, out = tempfile.mkstemp(dir=self.folder.parent, suffix=".out")
        with open(handle, "w") as stdout:
            process = subprocess.Popen(
                [*command, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return Running(process, Path(out))

    def runs(self, *arguments: str, command: list[str] = COMMAND) -> Done:
        return self.starts(*arguments, command=command).end()

    def tree(self, id: str) -> TreeRow:
        with closing(Store(self.environment["BATON_DATABASE_URL"], patience=5)) as store:
            return store.tree(id)

    def trees(self) -> list[str]:
        return [each["id"] for each in self.runs("ls", "--json").json]


def processes_of(ray_folder: str) -> dict[int, str]:
    """Living processes that were started with this folder for Ray, Ray's own among them: they inherit its name."""
    mark = f"RAY_TMPDIR={ray_folder}\0".encode()
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if mark in (path / "environ").read_bytes():
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it has ended meanwhile
                continue
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits for something that only the system's tables tell."""
    while not condition():
        time.sleep(0.05)


def waiting_for(answer: Path) -> list[str]:
    """A task of two children that wait for a file; its result is what that holds, twice."""
    context = {"file": str(answer), "count": 2, "child": "jobs:wait_for_file"}
    return ["wait", "--worker", "jobs:many", "--context", json.dumps(context)]


@contextmanager
def ray_folder() -> Iterator[str]:
    """A folder for Ray's sessions, empty of living processes at the end. Short: a socket's path has 107 characters at most."""
    folder = tempfile.mkdtemp(prefix="baton-")
    try:
        yield folder
    finally:
        for pid, command in processes_of(folder).items():
            if "baton_actors.cli" in command:  # of a test that failed
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not processes_of(folder))
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("user") / "project"
    folder.mkdir()
    (folder / "jobs.py").write_text((HERE / "jobs.py").read_text())
    (folder / "workers.py").write_text(WORKERS)
    (folder / "broken.py").write_text("raise KeyError('at import')")
    (folder / "leaves.py").write_text("import sys\nsys.exit(0)")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "BATON_", "PG"))}
    environment = {**kept, "PYTHONPATH": str(Path(baton_actors.__file__).parents[1]), "LC_ALL": "C.UTF-8"}
    with ray_folder() as own:
        yield Shell(folder, {**environment, "RAY_TMPDIR": own})


@pytest.fixture
def shell(terminal: Shell, tmp_path: Path) -> Shell:
    return terminal.but(BATON_DATABASE_URL=f"sqlite:///{tmp_path / 'baton.db'}")


# ---------------------------------------------------------------- a run and what is left of it


@dataclass(frozen=True)
class Digested:
    shell: Shell
    place: Path
    unreadable: set[str]
    done: Done


@pytest.fixture(scope="module")
def digested(terminal: Shell, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Digested]:
    """A `baton run` of the directory digest over a folder with all that such folders have."""
    place = tmp_path_factory.mktemp("digested")
    files = {
        "a.txt": b"one\ntwo\nno end",
        "empty.txt": b"",
        "bytes.bin": bytes(range(256)) * 20,
        "src/main.py": b"print()\n",
        "src/deep/er/still.py": b"\n\n\n",
        "src/__pycache__/main.pyc": b"\nnobody's work\n",
        ".git/config": b"[core]\n",
        "文書/城 🙂.md": "# 城\n".encode(),
        "closed/inside.txt": b"cannot be seen\n",
    }
    for name, data in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (place / "nothing").mkdir()
    (place / "link.txt").symlink_to("a.txt")
    (place / "loop").symlink_to(place, target_is_directory=True)
    (place / "dangling").symlink_to("nowhere")
    os.mkfifo(place / "pipe")
    unreadable = set()
    if os.geteuid() != 0:
        (place / "closed").chmod(0)
        unreadable.add(str(place / "closed"))
    shell = terminal.but(BATON_DATABASE_URL=f"sqlite:///{tmp_path_factory.mktemp('store') / 'baton.db'}")
    done = shell.runs("run", "digest the folder", "--worker", DIGEST, "--context", json.dumps({"path": str(place)}))
    yield Digested(shell, place, unreadable, done)
    (place / "closed").chmod(0o700)


def test_standard_output_of_a_run_is_its_result_and_nothing_else(digested: Digested) -> None:
    assert digested.done.code == 0, digested.done.err
    result = digested.done.json
    assert digested.done.out == json.dumps(result, ensure_ascii=False, indent=2) + "\n"
    assert {name: result[name] for name in ("folders", "files", "lines", "bytes")} == counted(digested)
    assert {each["path"] for each in result["unreadable"]} == digested.unreadable
    assert result["largest"][0] == {"path": str(digested.place / "bytes.bin"), "bytes": 5120}


def counted(digested: Digested) -> dict[str, int]:
    """The same by `find` and `wc`."""
    kept = "-name '.?*' -prune -o -name __pycache__ -prune -o"
    if digested.unreadable:
        kept += " -path ./closed -prune -o"

    def number(command: str) -> int:
        return int(subprocess.run(command, shell=True, cwd=digested.place, check=True, capture_output=True, text=True).stdout)

    everything = f"find . {kept} -type f -exec cat {{}} +"
    return {
        "folders": number(f"find . {kept} -type d -print | wc -l"),
        "files": number(f"find . {kept} -type f -print | wc -l"),
        "lines": number(f"{everything} | wc -l"),
        "bytes": number(f"{everything} | wc -c"),
    }


def test_what_a_run_says_off_a_terminal_is_plain_lines(digested: Digested) -> None:
    assert not CONTROL.search(digested.done.err)
    lines = digested.done.err.splitlines()
    assert lines[0] == "starting Ray on this machine"
    assert lines[-1].startswith("completed   digest the folder")
    assert sum(line.startswith("resumed ") for line in lines) == 3


def test_the_database_tells_the_story_of_a_run_without_ray(digested: Digested) -> None:
    def told(*arguments: str) -> str:
        done = digested.shell.runs(*arguments, command=WATCHED)
        assert (done.code, done.err) == (0, "False\n")
        return done.out

    (root,) = json.loads(told("ls", "--json"))
    tree = json.loads(told("tree", root["id"], "--json"))
    batons = {each["id"]: each for each in tree["batons"]}
    events = [json.loads(line) for line in told("events", root["id"]).splitlines()]
    folders = digested.done.json["folders"] + len(digested.unreadable)

    assert root == batons[root["id"]] == json.loads(told("show", root["id"], "--json"))
    assert root["result"] == digested.done.json
    assert (tree["root_id"], tree["status"], tree["seq"]) == (root["id"], "completed", len(events))
    assert len(batons) == folders
    assert all(id in batons[each["parent_id"]]["children"] for id, each in batons.items() if each["parent_id"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["type"] for event in events][:: len(events) - 1] == ["baton.created", "tree.completed"]
    ended = [event["baton_id"] for event in events if event["type"] in ("baton.completed", "baton.failed")]
    assert sorted(ended) == sorted(batons)


def test_an_event_log_can_be_read_on_from_any_event(digested: Digested) -> None:
    (id,) = digested.shell.trees()
    whole = digested.shell.runs("events", id).out.splitlines()
    assert digested.shell.runs("events", id, "--after", "3").out.splitlines() == whole[3:]
    beyond = digested.shell.runs("events", id, "--after", str(len(whole) + 1))
    assert (beyond.code, beyond.out) == (2, "")
    assert f"the last event of {id} is {len(whole)}" in beyond.err


def test_an_empty_database_lists_an_empty_list(shell: Shell) -> None:
    assert shell.runs("ls", "--json") == Done(0, "[]\n", "")


# ---------------------------------------------------------------- what cannot be used


@pytest.fixture
def without_ray(shell: Shell, tmp_path: Path) -> Shell:
    """A terminal whose folder for Ray is its own, so that it shows whether Ray was started."""
    folder = tmp_path / "ray"
    folder.mkdir()
    return shell.but(RAY_TMPDIR=str(folder))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([" \t", *FINE], "goal: is blank; say what is to be done"),
        (["\udcff", *FINE], "goal: has a lone surrogate"),
        (FINE, "Missing argument 'GOAL'; see 'baton run --help'"),
        (["g", "--tool", "nothing"], "tools: there is no tool 'nothing'"),
        (["g", "--worker", "workers"], "'workers' is no worker; give 'module:function', 'human', 'external'"),
        (["g", "--worker", "nowhere:fine"], "no module 'nowhere', neither installed nor in "),
        (["g", "--worker", "workers:nothing"], "module 'workers' has no 'nothing'"),
        (["g", "--worker", "workers:number"], "int, not a function"),
        (["g", "--worker", "workers:lonely"], "'workers:lonely' must take two arguments, (baton, ctx)"),
        (["g", "--worker", "broken:fine"], "importing 'broken' failed: KeyError: 'at import'"),
        (["g", "--worker", "leaves:fine"], "importing 'leaves' failed: SystemExit: 0"),
        (["g", *FINE, "--context", "{'a': 1}"], "--context: is not JSON"),
        (["g", *FINE, "--context", "[1]"], "--context: must be a JSON object, not list"),
        (["g", *FINE, "--context", '{"a": [NaN]}'], "context.a[0]: nan is not JSON"),
        (["g", *FINE, "--context", "@nowhere.json"], "--context: cannot read nowhere.json: No such file"),
        (["g", *FINE, "--max-rounds", "0"], "max_rounds: input should be greater than or equal to 1"),
        (["g", *FINE, "--timeout-hint", "-1"], "timeout_hint: input should be greater than 0"),
        (["g", *FINE, "--timeout-hint", "nan"], "timeout_hint: input should be a finite number"),
        (["g", *FINE, "--timeout", "-1"], "Invalid value for '--timeout'"),
        (["g", *FINE, "--budget", "apples=3"], "with a key of batons, rounds, tokens, cost, seconds"),
        (["g", *FINE, "--budget", "batons=0"], "--budget: batons: input should be greater than or equal to 1"),
        (["g", *FINE, "--budget", "seconds=nan"], "--budget: seconds: input should be a finite number"),
    ],
)
def test_a_task_that_cannot_be_run_is_refused_before_ray_starts(arguments: list[str], said: str, without_ray: Shell) -> None:
    done = without_ray.runs("run", *arguments)
    assert (done.code, done.out) == (2, "")
    assert_one_line(done, said)
    assert_nothing_began(without_ray)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("baton.db", "the database URL: cannot be understood; write sqlite:////path/file.db or postgresql://user@host/name"),
        ("mysql://host/name", "mysql://host/name: only SQLite and PostgreSQL can be used; write sqlite:////path/file.db"),
        ("sqlite:////proc/baton/baton.db", "sqlite:////proc/baton/baton.db: cannot be opened"),
    ],
)
def test_a_database_that_cannot_be_used_is_named_before_ray_starts(url: str, said: str, without_ray: Shell) -> None:
    for command in (["run", "g", "--worker", DIGEST], ["ls"]):
        done = without_ray.runs(*command, "--database-url", url)
        assert (done.code, done.out) == (5, "")
        assert_one_line(done, said)
    assert_nothing_began(without_ray)


def test_a_folder_that_cannot_be_written_is_named_before_ray_starts(without_ray: Shell) -> None:
    done = without_ray.runs("run", "g", "--worker", DIGEST, "--database-url", "sqlite:////proc/baton.db")  # closed to root, too
    assert done.code == 5
    assert_one_line(done, "/proc/baton.db: cannot be opened")
    assert_nothing_began(without_ray)


def test_an_address_behind_which_there_is_nothing_is_named(without_ray: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    for command in ("run", "submit"):
        done = without_ray.but(RAY_ADDRESS=address).runs(command, "g", "--worker", DIGEST)
        assert (done.code, done.out) == (5, "")
        assert_one_line(done, f"Ray at {address}: nothing answers there (Connection refused)")
        assert "unset RAY_ADDRESS" in done.err
    assert_nothing_began(without_ray)


def test_a_submission_without_a_cluster_says_how_to_start_one(without_ray: Shell) -> None:
    done = without_ray.runs("submit", "g", "--worker", DIGEST)
    assert (done.code, done.out) == (5, "")
    assert_one_line(done, "no cluster is running here; start one with 'ray start --head', or set RAY_ADDRESS")
    assert_nothing_began(without_ray)


@pytest.mark.parametrize("command", ["show", "tree", "watch", "events", "cancel", "retry", "resume"])
def test_an_unknown_id_is_said_to_be_unknown(command: str, without_ray: Shell) -> None:
    done = without_ray.runs(command, "bt_unknown")
    assert (done.code, done.out) == (1, "")
    assert_one_line(done, "no baton bt_unknown in this database; 'baton ls' lists what there is")
    assert_nothing_began(without_ray)


def assert_one_line(done: Done, said: str) -> None:
    line = done.err.removeprefix("imported\n")  # the worker's module may print; not to standard output
    assert line.startswith("error: ")
    assert line.count("\n") == 1
    assert said in line


def assert_nothing_began(shell: Shell) -> None:
    """No Ray was started, no process is left, no tree was written."""
    assert list(Path(shell.environment["RAY_TMPDIR"]).iterdir()) == []
    assert processes_of(shell.environment["RAY_TMPDIR"]) == {}
    with closing(Store(shell.environment["BATON_DATABASE_URL"], patience=5)) as store:
        store.upgrade()
        assert store.trees() == []


# ---------------------------------------------------------------- several runs on one file, one of them killed


@dataclass(frozen=True)
class Aftermath:
    """A run was killed with SIGKILL while its children ran; two others worked at the same time on the same file."""

    shell: Shell
    ray_folder: str
    answer: Path
    killed: str
    at_death: TreeRow
    others: list[Done]


@pytest.fixture(scope="module")
def aftermath(terminal: Shell, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    folder = tmp_path_factory.mktemp("shared")
    answer = folder / "answer.txt"
    shell = terminal.but(BATON_DATABASE_URL=f"sqlite:///{folder / 'baton.db'}")
    with ray_folder() as of_the_victim:
        victim = shell.but(RAY_TMPDIR=of_the_victim).starts("run", *waiting_for(answer))
        victim.says("started     part")
        victim.kill()
        victim.end()
        (killed,) = shell.trees()
        at_death = shell.tree(killed)
        total = ["run", "add", "--worker", "jobs:total", "--json", "--context"]
        others = [shell.starts(*total, json.dumps({"to": to})) for to in (20, 30)]
        yield Aftermath(shell, of_the_victim, answer, killed, at_death, [each.end() for each in others])


def test_a_killed_run_takes_its_ray_with_it(aftermath: Aftermath) -> None:
    # Ray's two agents may outlive their raylet while they report its death to nobody; the fixture waits for them too.
    def left() -> list[str]:
        return [command for command in processes_of(aftermath.ray_folder).values() if "Agent" not in command]

    wait_for(lambda: not left())


def test_two_runs_on_one_file_both_complete(aftermath: Aftermath) -> None:
    assert [done.code for done in aftermath.others] == [0, 0], [done.err for done in aftermath.others]
    for done, to in zip(aftermath.others, (20, 30), strict=True):
        told = done.json
        shown = aftermath.shell.runs("show", told["id"], "--json").json
        first, last = ["id", "status", "result", "error", "error_kind"], ["batons", "events", "rounds", "usage", "duration_ms", "partial"]
        assert list(told) == first + last
        assert (told["status"], told["result"], told["error"], told["error_kind"]) == ("completed", to * (to + 1) // 2, None, None)
        assert (told["batons"], told["usage"], told["partial"]) == ({"completed": to + 1}, {}, False)
        assert told["events"] == aftermath.shell.tree(told["id"]).seq
        assert told["duration_ms"] == shown["updated_at"] - shown["created_at"]


def test_runs_on_one_file_do_not_touch_the_tree_of_another(aftermath: Aftermath) -> None:
    rows = [aftermath.shell.tree(done.json["id"]) for done in aftermath.others]
    assert [(row.status, row.epoch) for row in rows] == [("completed", 1)] * 2
    assert len({row.cluster_id for row in rows} | {aftermath.at_death.cluster_id}) == 3
    now = aftermath.shell.tree(aftermath.killed)
    assert (now.status, now.epoch, now.cluster_id) == ("open", aftermath.at_death.epoch, aftermath.at_death.cluster_id)


def test_a_resumed_tree_finishes_once_the_lease_of_its_killed_run_is_over(aftermath: Aftermath) -> None:
    aftermath.answer.write_text("here")
    left = aftermath.shell.tree(aftermath.killed)
    done = aftermath.shell.runs("resume", aftermath.killed)
    assert (done.code, done.out) == (0, f'{aftermath.killed}  completed  ["here", "here"]\n'), done.err
    row = aftermath.shell.tree(aftermath.killed)
    assert row.epoch > left.epoch
    assert row.cluster_id != left.cluster_id
    events = [json.loads(line) for line in aftermath.shell.runs("events", aftermath.killed).out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, row.seq + 1))
    assert events[left.seq]["at"] >= left.lease_until


# ---------------------------------------------------------------- interrupted


@pytest.fixture
def apart(shell: Shell) -> Iterator[Shell]:
    """A terminal of which no process is alive when the test is over."""
    with ray_folder() as own:
        yield shell.but(RAY_TMPDIR=own)


def test_an_interrupted_run_cancels_its_tree_and_had_named_the_unfinished_one(apart: Shell, tmp_path: Path) -> None:
    left = Driver()
    left.breakdown(ROOT, "one", "two")
    store_tree(apart.environment["BATON_DATABASE_URL"], left, lease_ms=-1)
    run = apart.starts("run", *waiting_for(tmp_path / "never"))
    run.says(f"1 unfinished tree: baton resume {ROOT}")
    run.says("started     part")
    run.interrupt()
    done = run.end()
    (id,) = set(apart.trees()) - {ROOT}
    assert (done.code, done.out) == (130, "")
    assert f"cancelled {id}; 'baton retry {id}' starts it again" in done.err
    assert "Traceback" not in done.err
    batons = apart.runs("tree", id, "--json").json["batons"]
    assert [each["error_kind"] for each in batons] == ["cancelled"] * 3
    assert apart.tree(ROOT).epoch == 1


def test_a_run_that_is_interrupted_while_ray_starts_leaves_nothing(apart: Shell) -> None:
    run = apart.starts("run", "g", "--worker", "jobs:total", "--context", '{"to": 2}')
    run.says("starting Ray on this machine")
    run.interrupt()
    assert run.end().code == 130
    assert apart.trees() == []


# ---------------------------------------------------------------- in a cluster that is there


@pytest.fixture(scope="module")
def joined(terminal: Shell, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A terminal with RAY_ADDRESS set to the session's Ray, in a namespace of its own."""
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    yield terminal.but(
        BATON_DATABASE_URL=f"sqlite:///{tmp_path_factory.mktemp('cluster') / 'baton.db'}",
        BATON_NAMESPACE=namespace,
        RAY_ADDRESS=ray.get_runtime_context().gcs_address,
        RAY_AUTH_MODE="disabled",
    )
    end_actors(namespace)


def test_a_submitted_tree_outlives_its_watcher_and_its_result_is_watched_later(joined: Shell, tmp_path: Path) -> None:
    answer = tmp_path / "answer.txt"
    submitted = joined.runs("submit", "tick", "--worker", "workers:ticking", "--context", json.dumps({"file": str(answer)}))
    id = submitted.out.strip()
    assert submitted.code == 0, submitted.err
    watching = joined.starts("watch", id)
    watching.says("handed_over tick")
    watching.interrupt()
    done = watching.end()
    assert (done.code, done.out) == (130, "")
    assert f"no longer watching; {id} goes on" in done.err
    assert joined.tree(id).status == "open"
    answer.write_text("here")
    assert joined.runs("watch", id).out == "here\n"


def test_a_cancelled_run_exits_with_3_and_can_be_started_again(joined: Shell, tmp_path: Path) -> None:
    answer = tmp_path / "answer.txt"
    run = joined.starts("run", *waiting_for(answer))
    run.says("started     part")
    id = joined.trees()[0]
    assert joined.runs("cancel", id, "--reason", "no need", "--json").json == {"id": id, "done": "cancelled"}
    done = run.end()
    assert (done.code, done.out) == (3, "")
    assert done.err.splitlines()[-1] == f"error: baton {id} was cancelled (no need); 'baton retry {id}' starts it again"
    answer.write_text("here")
    assert joined.runs("retry", id).code == 0
    assert joined.runs("watch", id).json == ["here", "here"]


def test_a_failed_run_is_one_line_and_one_object(joined: Shell) -> None:
    done = joined.runs("run", "fail", "--worker", "jobs:raises", "--json")
    told = done.json
    assert (done.code, told["status"], told["error_kind"], told["batons"]) == (1, "failed", "error", {"failed": 1})
    assert told["error"].startswith("Unpicklable: broken on purpose\n")
    assert told["result"] is None
    assert [line for line in done.err.splitlines() if line.startswith("error")] == [
        f"error: baton {told['id']} failed (error): Unpicklable: broken on purpose; 'baton retry {told['id']}' starts it again"
    ]


def test_a_run_that_takes_too_long_exits_with_4_and_goes_on(joined: Shell, tmp_path: Path) -> None:
    answer = tmp_path / "answer.txt"
    done = joined.runs("run", *waiting_for(answer), "--timeout", "0.5", "--json")
    id = done.json["id"]
    assert (done.code, done.json["result"]) == (4, None)
    assert done.err.splitlines()[-1] == f"error: baton {id} has not ended within 0.5 s; it goes on: 'baton watch {id}'"
    answer.write_text("here")
    log = joined.runs("events", id, "--follow").out.splitlines()
    assert json.loads(log[-1])["type"] == "tree.completed"


def test_a_question_is_listed_and_answered(joined: Shell) -> None:
    id = joined.runs("submit", "which colour?", "--worker", "human", "--json").json["id"]
    (waiting,) = joined.runs("ls", "--waiting", "--json").json
    assert waiting["id"] == id
    assert joined.runs("answer", id, "蓝 🙂").code == 0
    assert joined.runs("watch", id).out == "蓝 🙂\n"
    refused = joined.runs("answer", id, "red")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.splitlines()[-1].startswith(f"error: baton {id} does not wait")


def test_a_cluster_that_works_on_another_database_is_not_used(joined: Shell, tmp_path: Path) -> None:
    joined.runs("run", "g", *FINE)
    other = joined.but(BATON_DATABASE_URL=f"sqlite:///{tmp_path / 'other.db'}")
    done = other.runs("run", "g", *FINE)
    assert (done.code, done.out) == (5, "")
    assert f"this cluster works on {joined.environment['BATON_DATABASE_URL']}" in done.err.splitlines()[-1]
    assert other.trees() == []


pytestmark = pytest.mark.timeout(180)
