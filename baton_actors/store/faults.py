"""What a driver's error means: something to wait for, a database that cannot be used, values it refuses, or a commit in doubt.

Each becomes one line that says what to do. A password is never in it: what a driver says is quoted only where it
cannot contain one.
"""

import sqlite3
from typing import Any

from sqlalchemy import URL
from sqlalchemy.exc import DataError, DBAPIError

from baton_actors.errors import BatonError, DatabaseUnusable

_NO_TABLES = "has no tables of this program yet; 'baton db upgrade' makes them"
_INSTALL = "pip install 'baton_actors[postgres]'"

#: What PostgreSQL says when the same attempt may succeed a moment later. libpq's refusals carry no SQLSTATE.
_PASSING = (
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "starting up",
    "shutting down",
    "recovery mode",
    "not yet accepting connections",
    "administrator command",
    "connection refused",
    "connection reset",
    "closed the connection",
    "closed unexpectedly",
    "timeout expired",
    "timed out",
    "no such file or directory",  # the socket of a server that restarts
    "temporary failure in name resolution",
)


class CommitDoubtful(BatonError):
    """A transaction failed, or nobody knows whether it was committed: read the database again, never guess.

    Args:
        what: the tree or the step it was for.
        why: what the driver said.
    """

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{self.what}: not known to be written ({self.why}); it is read again from the database"


class GroupRefused(BatonError):
    """The database does not take what was to be written, and never will: nothing of it was written, and the database is well.

    Args:
        what: the tree or the step it was for.
        why: what the driver said.
    """

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{self.what}: the database refuses what was to be written ({self.why}); nothing of it was"


class NotBegun(DatabaseUnusable):
    """A tree could not begin because the database cannot be used: who hands it in is told now, and need not wait."""


#: SQLSTATE classes and SQLite codes of values that are refused: data, integrity, a limit of the program; never of a moment.
_REFUSED_STATES = ("22", "23", "54")
_REFUSED_CODES = ("SQLITE_CONSTRAINT", "SQLITE_TOOBIG", "SQLITE_MISMATCH", "SQLITE_RANGE")
#: What a driver raises, outside its own errors, before it sends a value: a lone surrogate, a number that no column holds.
UNSENDABLE = (UnicodeError, OverflowError)


def passes(error: DBAPIError) -> bool:
    """Whether the attempt may succeed a moment later, before anything was sent."""
    if (name := _sqlite_name(error)) is not None:
        return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"))
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return bool(state.startswith(("08", "57P", "53300")))
    return any(words in str(error.orig).lower() for words in _PASSING)


def opening_fault(url: URL, error: BaseException) -> DatabaseUnusable:
    """The line for a database that cannot be opened."""
    shown = shown_url(url)
    if isinstance(error, ModuleNotFoundError):
        return DatabaseUnusable(shown, f"PostgreSQL needs a driver that is not installed; {_INSTALL}")
    orig = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(orig, sqlite3.Error | OSError):
        return DatabaseUnusable(shown, _sqlite_words(url, orig))
    return DatabaseUnusable(shown, _postgresql_words(url, orig))


def writing_fault(url: URL, what: str, error: BaseException) -> BatonError:
    """What a transaction that broke is raised as: unusable where waiting will not help, refused where other values would; else doubtful."""
    if not isinstance(error, DBAPIError):
        return GroupRefused(what, first_line(error))
    if _is_refused(error):
        return GroupRefused(what, first_line(error.orig))
    name = _sqlite_name(error) or ""
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_READONLY", "SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_CANTOPEN")):
        return opening_fault(url, error)
    if getattr(error.orig, "sqlstate", None) in ("53100", "25006", "42501"):
        return opening_fault(url, error)
    return CommitDoubtful(what, first_line(error.orig))


def _is_refused(error: DBAPIError) -> bool:
    if error.connection_invalidated:
        return False
    if (name := _sqlite_name(error)) is not None:
        return name.startswith(_REFUSED_CODES)
    state = getattr(error.orig, "sqlstate", None)
    # Without a state, it is the driver that does not send such a value: a NUL in a text.
    return isinstance(error, DataError) if state is None else bool(state.startswith(_REFUSED_STATES))


def patience_fault(url: URL, error: DBAPIError, seconds: float) -> DatabaseUnusable:
    """The line when waiting has lasted too long."""
    shown = shown_url(url)
    if _sqlite_name(error) is not None:
        return DatabaseUnusable(shown, f"locked by another process for {seconds:g} s; look for a stopped one that has it open, and end it")
    return DatabaseUnusable(shown, f"{_postgresql_words(url, error.orig)} (tried for {seconds:g} s)")


def shown_url(url: URL) -> str:
    """The URL without its password, wherever that stands."""
    if "password" in url.query:
        url = url.update_query_dict({"password": "***"})
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def first_line(error: object) -> str:
    """The first line of what a driver said, not too long."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _sqlite_name(error: DBAPIError) -> str | None:
    """SQLite's own name of the error; None if it is not SQLite's."""
    if not isinstance(error.orig, sqlite3.Error):
        return None
    return getattr(error.orig, "sqlite_errorname", None) or ""


def _sqlite_words(url: URL, error: BaseException) -> str:
    name = getattr(error, "sqlite_errorname", None) or ""
    if isinstance(error, PermissionError) or name.startswith("SQLITE_CANTOPEN"):
        return "cannot be opened; its folder must exist and be writable for you, or set BATON_DATABASE_URL to another place"
    if name.startswith("SQLITE_READONLY"):
        return "is read-only; give yourself write permission on the file and its folder, or set BATON_DATABASE_URL to another place"
    if name.startswith("SQLITE_FULL") or getattr(error, "errno", None) == 28:
        return "the disk is full; free some space, nothing that was acknowledged is lost"
    if name.startswith("SQLITE_NOTADB"):
        return "is not a SQLite database; set BATON_DATABASE_URL to another file, or move this one away"
    if name.startswith("SQLITE_CORRUPT"):
        return "is damaged; restore a backup, or recover what is left with 'sqlite3 FILE .recover'"
    if name.startswith("SQLITE_IOERR"):
        return f"cannot be read or written ({first_line(error)}); look at the disk, or at its quota"
    if "no such table" in str(error):
        return _NO_TABLES
    return f"cannot be opened ({first_line(error)}); set BATON_DATABASE_URL=sqlite:////folder/file.db to a place that you can write to"


def _postgresql_words(url: URL, error: BaseException | None) -> str:
    said = str(error).lower()
    where = f"{url.host or 'the local socket'}:{url.port or 5432}"
    state: Any = getattr(error, "sqlstate", None)
    if "password authentication failed" in said or "no password supplied" in said:
        return f"wrong or no password for user {url.username!r}; set PGPASSWORD or ~/.pgpass on every node"
    if "pg_hba.conf" in said or "authentication failed" in said:
        return f"the server does not let user {url.username!r} in from here; look at its pg_hba.conf"
    if "role" in said and "does not exist" in said:
        return f"the server has no user {url.username!r}; 'createuser', or another user in the URL"
    if "database" in said and "does not exist" in said:
        return f"the server has no database {url.database!r}; 'createdb {url.database} --encoding UTF8'"
    if "could not translate host name" in said or "failed to resolve host" in said or "name or service not known" in said:
        return f"no host is called {url.host!r}; look at the URL"
    if "too many" in said or "connection slots" in said:
        return "the server has no free connection; raise its max_connections, or run fewer programs on it"
    if state == "42P01":
        return _NO_TABLES
    if state == "53100":
        return "the server's disk is full; free some space, nothing that was acknowledged is lost"
    if state == "25006":
        return "the server is read-only (a standby?); name the primary in the URL"
    if state == "42501":
        return f"user {url.username!r} may not do this; make it the owner of the database: {first_line(error)}"
    if any(words in said for words in _PASSING):
        return f"nothing answers at {where}; start PostgreSQL there, or look at the URL ({_last_line(error)})"
    return f"cannot be used: {_last_line(error)}"


def _last_line(error: object) -> str:
    """libpq puts the reason at the end of its first line."""
    return first_line(error).rpartition(": ")[2] or first_line(error)
