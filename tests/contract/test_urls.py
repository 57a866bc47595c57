"""URLs that lead to no usable database: one line that says what to write, and never a password."""

import pytest

from baton_actors.errors import DatabaseUnusable
from baton_actors.store import Store


@pytest.mark.parametrize("url", ["", "nonsense", "postgresql://u:s3cret@h:port/d", "://"])
def test_a_url_that_is_none_is_refused_with_the_form_to_write(url: str) -> None:
    with pytest.raises(DatabaseUnusable, match=r"sqlite:////.*postgresql://") as refused:
        Store(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("url", ["mysql://u:s3cret@h/d", "sqlite://", "sqlite:///:memory:"])
def test_a_database_that_cannot_serve_is_refused(url: str) -> None:
    with pytest.raises(DatabaseUnusable, match=r"only SQLite and PostgreSQL|one process alone") as refused:
        Store(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@h/d", "postgresql://me:***@h/d"),
        ("postgresql+psycopg://me@h/d?password=s3cret", "postgresql://me@h/d?password=%2A%2A%2A"),
        ("sqlite:////tmp/baton.db", "sqlite:////tmp/baton.db"),
    ],
)
def test_the_public_url_has_no_password(url: str, shown: str) -> None:
    assert Store(url).public_url == shown


def test_a_store_opens_nothing_before_its_first_use() -> None:
    store = Store("postgresql://nobody@no-such-host.invalid/none")
    assert store.statements == 0
    store.close()


def test_without_its_driver_postgresql_prints_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(DatabaseUnusable, match=r"pip install 'baton_actors\[postgres\]'"):
        Store("postgresql://me:s3cret@h/d")
