"""Characters: harmless, of the right width, with times for people."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from baton_actors.display import (
    LiveTree,
    Spent,
    TreeView,
    elapsed,
    harmless,
    layout,
    mermaid,
    rich_line,
    shortened,
    text_lines,
    usage_in_words,
)
from baton_actors.display.wording import harmless_lines
from baton_actors.events import Whisper
from tests.unit.drive import BEGIN, ROOT, Driver
from tests.unit.test_display_view import followed

WIDE = "漢字かな交じり文の目標です" * 10


def failing(goal: str, error: str) -> TreeView:
    driver = Driver(goal=goal)
    driver.start()
    driver.later(1.5)
    driver.fail(error=error)
    return followed(driver)


def drawn(view: TreeView, *, width: int = 80, height: int = 24, colour: bool = True, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(
        file=stream, force_terminal=True, width=width, height=height, no_color=not colour, color_system="standard", legacy_windows=False
    )
    console.print(LiveTree(view, lambda: BEGIN + 60_000))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]  # a BytesIO


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\t c ", "a b c"),
        ("\x1b[2J\x07bell", "�[2J�bell"),
        ("a\u202egnp.exe", "a�gnp.exe"),
        ("\u2066x\x9b31m", "�x�31m"),
        ("漢字 🙂", "漢字 🙂"),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
        ("\udc88", "�"),
    ],
)
def test_text_can_do_nothing_to_a_terminal(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_a_long_text_is_cut_before_it_is_looked_at() -> None:
    assert harmless("x" * 10_000_000, 10) == "xxxxxxxxxx…"


@given(st.text(), st.integers(0, 60))
def test_a_shortened_text_has_no_more_cells_than_asked(text: str, width: int) -> None:
    assert cell_len(shortened(harmless(text), width)) <= width


@given(st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"])), st.integers(1, 60))
def test_a_text_that_fits_is_left_alone(text: str, width: int) -> None:
    assert (shortened(text, width) == text) == (len(text) <= width)


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(-5, "0.0 s"), (0, "0.0 s"), (449, "0.4 s"), (9_949, "9.9 s"), (9_950, "10 s"), (59_499, "59 s"), (59_500, "1 min 00 s"),
     (185_000, "3 min 05 s"), (7_800_000, "2 h 10 min"), (356_400_000, "4 d 3 h")],
)  # fmt: skip
def test_times_are_for_people(milliseconds: int, words: str) -> None:
    assert elapsed(milliseconds) == words


@pytest.mark.parametrize("ids", [False, True])
def test_no_line_is_wider_than_the_terminal(ids: bool) -> None:
    driver = Driver(goal=WIDE, check_every=1_000)
    id = ROOT
    for _ in range(110):  # levels of three digits
        [id, other, *_] = driver.breakdown(id, WIDE, WIDE)
        driver.start(other)
        driver.checkpoint(other, kind="round", tokens_in=123_456, tokens_out=1, cost=0.5)
    view = followed(driver)
    view.hear(Whisper(other, 1, "tool", WIDE), BEGIN)
    for width in range(20, 121):
        for text in text_lines(view, BEGIN, width=width, ids=ids):
            assert cell_len(text) <= width
        for line in layout(view):
            assert cell_len(rich_line(line, BEGIN, width=width, ids=ids).plain) <= width
    driver.start(id)
    driver.fail(id, error=WIDE)
    driver.cancel(driver.baton().children[0], WIDE)
    view = followed(driver)
    for width in range(20, 121):
        for text in text_lines(view, BEGIN, width=width, ids=ids):
            assert cell_len(text) <= width


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (Spent(), ("", "", "")),
        (Spent(1, 1, 0), ("1 round", "1 token", "cost 0")),
        (Spent(7, 412, 0.0123), ("7 rounds", "412 tokens", "cost 0.0123")),
        (Spent(1_000, 999.6, 0.00001), ("1,000 rounds", "1.0k tokens", "cost under 0.0001")),
        (Spent(2, 12_345, 1), ("2 rounds", "12.3k tokens", "cost 1.00")),
        (Spent(2, 99_949, 1_234.5), ("2 rounds", "99.9k tokens", "cost 1,234.50")),
        (Spent(2, 99_950), ("2 rounds", "100k tokens", "")),
        (Spent(2, 999_500), ("2 rounds", "1.0M tokens", "")),
        (Spent(2, 1_234_567_890), ("2 rounds", "1,234.6M tokens", "")),
    ],
)
def test_what_was_used_is_for_people(spent: Spent, words: tuple[str, str, str]) -> None:
    assert spent.words() == words


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        ({"tokens_in": 1_234, "tokens_out": 56}, "1,234 tokens in, 56 out"),
        (
            {"tokens_in": 1_234, "tokens_cached": 1_000, "tokens_out": 56, "cost": 0.0123},
            "1,234 tokens in (1,000 cached), 56 out, cost 0.0123",
        ),
        ({"tokens_lost": 500, "cost": 0}, "0 tokens in, 0 out, 500 at most in lost runs, cost 0"),
    ],
)
def test_usage_is_told_whole(usage: dict[str, float], words: str) -> None:
    assert usage_in_words(usage) == words


def test_lines_of_a_text_stay_lines_and_keep_their_white_space() -> None:
    assert harmless_lines("a\r\n\tb  c\x1b[2J\u3000d\u2028e\n") == ["a", "    b  c�[2J d", "e"]


def test_without_a_width_nothing_is_cut() -> None:
    assert WIDE in next(text_lines(failing(WIDE, "x"), BEGIN))


def test_a_failure_is_told_with_its_time_and_its_reason_below() -> None:
    assert list(text_lines(failing("count", "no such file"), BEGIN)) == ["failed    count  1.5 s", "  error: no such file"]


def test_the_root_tells_the_counts_of_all_below_it() -> None:
    driver = Driver()
    done, _ = driver.breakdown(ROOT, "a", "b")
    driver.run(done)
    assert next(text_lines(followed(driver), BEGIN)) == "spawned   all  1 done · 1 pending  0.0 s"


def test_a_terminal_sees_marks_in_colour() -> None:
    picture = drawn(failing("count", "no such file"))
    assert "✗" in picture
    assert "\x1b[1;31m" in picture


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_without_colour_or_unicode_the_marks_are_words(encoding: str) -> None:
    picture = drawn(failing("count", "no such file"), colour=encoding == "ascii", encoding=encoding)
    assert picture.startswith("failed    count")
    assert "✗" not in picture


def test_a_goal_cannot_write_markup_or_escapes_into_the_live_view() -> None:
    picture = drawn(failing("[bold]\x1b[2J[/]", "[red]\x1b]0;title\x07"), colour=False)
    assert "[bold]�[2J[/]" in picture
    assert "\x1b" not in picture


def test_the_live_view_fits_a_small_terminal() -> None:
    driver = Driver(goal=WIDE)
    driver.breakdown(ROOT, *[WIDE] * 100)
    rows = drawn(followed(driver), width=30, height=6, colour=False).rstrip("\n").split("\n")
    assert len(rows) == 5
    assert all(cell_len(row) <= 30 for row in rows)


def test_a_diagram_has_a_node_for_each_baton_and_an_arrow_to_each_child() -> None:
    driver = Driver(goal='say "hi" <b>`x`</b> #1 [y]')
    driver.breakdown(ROOT, "a", "b")
    text = mermaid(followed(driver))
    assert text.splitlines()[:6] == [
        "flowchart TD",
        '    n0["say #34;hi#34; #60;b#62;#96;x#96;#60;/b#62; #35;1 #91;y#93;"]:::spawned',
        '    n1["a"]:::pending',
        "    n0 --> n1",
        '    n2["b"]:::pending',
        "    n0 --> n2",
    ]


def test_a_large_diagram_tells_what_it_leaves_out() -> None:
    driver = Driver(check_every=10_000)
    driver.breakdown(ROOT, *(f"part {n}" for n in range(1_000)))
    text = mermaid(followed(driver))
    assert text.count("-->") == 300
    assert "… 701 more" in text
