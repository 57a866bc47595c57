"""`doctor` and `db upgrade`: whether everything that a task needs is there."""

import platform
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from baton_actors.cli.database import PATIENCE, opened
from baton_actors.cli.options import AsJson, DatabaseUrl, database
from baton_actors.cli.output import print_json, print_text, status_line
from baton_actors.errors import BatonError
from baton_actors.settings import load_settings, model_key, ray_address

if TYPE_CHECKING:
    from baton_actors.store import Store

_PROBE_SECONDS = 3.0
#: Below this Ray stops taking work (it refuses at 95 % full) and SQLite is near its end.
_MIN_FREE_BYTES = 1 << 30
_MIN_RAY = (2, 50)
_CLUSTER_REMEDY = "start it again with 'ray start --head'; to do without it, unset RAY_ADDRESS, or let 'ray stop' forget it"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's table. `remedy` says what to do when it is not ok."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(doctor)
    db = typer.Typer(help="The database.", no_args_is_help=True, rich_markup_mode=None)
    db.command("upgrade")(upgrade)
    db.callback()(_database_commands)
    app.add_typer(db, name="db")


def _database_commands() -> None:
    """The database."""


def upgrade(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Create the tables, or bring them up to date."""
    with opened(database_url) as store:
        revision, url = store.upgrade(), store.public_url
    if as_json:
        print_json({"database": url, "revision": revision})
    else:
        print_text(f"{url}: schema {revision}")


def doctor(as_json: AsJson = False, database_url: DatabaseUrl = None) -> int:
    """Check what a task needs.

    What is missing is said together with what to do about it; exit code 1 if something is."""
    with status_line() as progress:
        checks = list(_checks(database_url, progress))
    healthy = all(check.ok for check in checks)
    if as_json:
        print_json({"ok": healthy, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            print_text(f"{'ok  ' if check.ok else 'FAIL'}  {check.name:<16}  {check.found}")
            if not check.ok:
                print_text(f"{'':22}  -> {check.remedy}")
    return 0 if healthy else 1


def _checks(url: str | None, progress: Callable[[str], None]) -> Iterator[Check]:
    yield Check("python", True, platform.python_version())
    yield _ray()
    progress("asking the database")
    yield from _database(url)
    progress("asking the cluster")
    yield _cluster()
    yield _model(progress)


def _ray() -> Check:
    try:
        found = version("ray")
    except PackageNotFoundError:
        return Check("ray", False, "not installed", "pip install 'ray[default]>=2.50'")
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    return Check("ray", numbers >= _MIN_RAY, found, "pip install -U 'ray[default]>=2.50'")


def _database(url: str | None) -> Iterator[Check]:
    from baton_actors.store import Store

    try:
        store = Store(database(url), patience=PATIENCE)
    except BatonError as error:
        yield Check("database", False, str(error), "set BATON_DATABASE_URL, or give --database-url")
        return
    try:
        yield from _inside(store)
    finally:
        store.close()
    yield _disk(store.url)


def _inside(store: "Store") -> Iterator[Check]:
    try:
        revision = store.upgrade()
    except BatonError as error:
        yield Check("database", False, store.public_url, str(error))
        return
    yield Check("database", True, store.public_url)
    yield Check("schema", True, revision)
    try:
        store.renew("doctor")  # a write transaction that finds nothing to change
        yield Check("writable", True, "yes")
    except BatonError as error:
        yield Check("writable", False, "no", str(error))
    left = store.abandoned()
    if left:
        ids = ", ".join(left[:3]) + (", …" if len(left) > 3 else "")
        yield Check("unfinished trees", False, f"{len(left):,}, with no cluster working for them: {ids}", "baton resume")
    else:
        yield Check("unfinished trees", True, "none without a cluster")


def _disk(url: str) -> Check:
    """Room where SQLite's file is, else where Ray puts its own."""
    place = Path("/tmp")
    if url.startswith("sqlite"):
        place = Path(url.partition(":///")[2].partition("?")[0] or ".").expanduser()
    while not place.is_dir():
        place = place.parent
    free = shutil.disk_usage(place).free
    return Check("disk", free >= _MIN_FREE_BYTES, f"{free / (1 << 30):,.1f} GiB free at {place}", "make room: at least 1 GiB")


def _cluster() -> Check:
    address = ray_address()
    if address is None:
        return Check("cluster", True, "none running: 'baton run' starts a private one")
    if address in ("auto", "local"):
        return Check("cluster", True, f"RAY_ADDRESS={address}, which Ray resolves itself")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS).close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return Check("cluster", False, f"{address}: {why}", _CLUSTER_REMEDY)
    return Check("cluster", True, f"{address} answers")


def _model(progress: Callable[[str], None]) -> Check:
    """Which model an agent would get here; a server is asked for its list, nothing is downloaded."""
    from baton_actors.agent.access import Wishes, choose
    from baton_actors.agent.weights import available

    settings, key = load_settings(), model_key()
    if settings.model is None and settings.openai_base_url is None and key is None:
        if missing := available():
            return Check("model", True, f"none, so agents cannot run; set OPENAI_API_KEY or OPENAI_BASE_URL, or {missing}")
        return Check("model", True, "none is set up: the small local one answers")

    def listed(url: str, key: str | None) -> list[str] | None:
        from baton_actors.agent.chat import listed_models

        progress(f"asking {url} for its models")
        return listed_models(url, key)

    try:
        name, url = choose(Wishes(settings.model, settings.openai_base_url, key, settings.openai_model), listed, progress)
    except BatonError as error:
        return Check("model", False, "none that can be used", str(error))
    return Check("model", True, f"{name} at {url}")
