"""What a person sees: the command in a real terminal of 80 columns."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.cells import cell_len

from baton_actors.commands import Spending
from tests.unit.drive import ROOT, Driver
from tests.unit.stored import sqlite_url, store_tree

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def seen(arguments: list[str], folder: Path, **environment: str) -> str:
    """What `baton ARGUMENTS` writes to a terminal of 80 columns and 24 lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "RAY_ADDRESS", "COLUMNS", "LINES", "CI")}
    place = {"BATON_DATABASE_URL": sqlite_url(folder), "TERM": "xterm-256color", "RAY_TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "baton_actors.cli", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**kept, **place, **environment})
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 65_536):
            written += data
    except OSError:  # Linux's way to say that the other side has closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    return written.decode().replace("\r\n", "\n")


def wide_tree() -> Driver:
    goal = "漢字かな交じり文 🙂 " * 12
    driver = Driver(goal=goal)
    good, bad = driver.breakdown(ROOT, goal, goal + "\x1b[2J\x07")
    driver.run(good)
    driver.start(bad)
    driver.fail(bad, error=goal)
    driver.run(ROOT)
    return driver


def test_a_tree_fits_80_columns_in_colour_and_in_words(tmp_path: Path) -> None:
    driver = wide_tree()
    store_tree(sqlite_url(tmp_path), driver)
    coloured = seen(["tree", ROOT], tmp_path)
    assert "✓" in coloured
    assert "\x1b[" in coloured
    words = seen(["tree", ROOT], tmp_path, NO_COLOR="1")
    assert words.startswith("completed ")
    assert "\x1b" not in words
    for text in (ESCAPE.sub("", coloured), words):
        lines = text.rstrip("\n").split("\n")
        assert len(lines) == 4
        assert all(cell_len(line) <= 80 for line in lines)
        assert all(any(id in line for line in lines) for id in driver.tree.nodes)


def test_the_list_fits_80_columns(tmp_path: Path) -> None:
    store_tree(sqlite_url(tmp_path), wide_tree())
    [line] = seen(["ls"], tmp_path).rstrip("\n").split("\n")
    assert cell_len(line) <= 80


def test_json_for_a_person_is_indented(tmp_path: Path) -> None:
    store_tree(sqlite_url(tmp_path), wide_tree())
    assert seen(["tree", ROOT, "--json"], tmp_path).startswith('{\n  "root_id"')


def test_watching_an_ended_tree_shows_it_once_and_then_the_answer(tmp_path: Path) -> None:
    store_tree(sqlite_url(tmp_path), wide_tree())
    text = ESCAPE.sub("", seen(["watch", ROOT], tmp_path, NO_COLOR="1"))
    assert text.rstrip("\n").split("\n")[-1] == "done"
    assert all(cell_len(line) <= 80 for line in re.split(r"[\r\n]+", text))


def test_what_a_tree_of_agents_used_stays_above_the_answer(tmp_path: Path) -> None:
    driver = Driver(goal="漢字 " * 100, worker="agent")
    driver.start()
    driver.complete(value="the answer", spent=Spending({"tokens_in": 12_000, "tokens_out": 345, "cost": 0.0123}, 2))
    store_tree(sqlite_url(tmp_path), driver)
    rows = ESCAPE.sub("", seen(["watch", ROOT], tmp_path)).rstrip("\n").split("\n")
    assert rows[-1] == "the answer"
    assert rows[-2].endswith("  0.0 s  2 rounds  12.3k tokens  cost 0.0123")
    assert cell_len(rows[-2].rpartition("\r")[2]) <= 80
