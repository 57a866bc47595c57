"""Finding a Ray cluster or starting a private one, and the directory in it."""

import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayError

from baton_actors.errors import ClusterUnusable
from baton_actors.runtime import directory, reader
from baton_actors.settings import Settings, ray_address, without_password

Progress = Callable[[str], None]

#: Seconds in which an address must accept a connection. `ray.init` itself would wait for minutes.
PROBE_SECONDS = 3.0
#: Seconds in which the directory must answer; it is an actor, whose process takes a second to start on an idle machine.
ANSWER_SECONDS = 90.0
#: A private cluster is this program's alone: no waiting for its dashboard, no telemetry, and worker processes are kept a while.
_PRIVATE_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_num_workers_soft_limit": "8",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_PRIVATE_OBJECT_STORE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Joined:
    """How this program came to be connected: `private`: it started the cluster for itself; `ours`: it is to disconnect."""

    private: bool
    ours: bool


#: What `find` says when this program is connected already.
CONNECTED = "this program's"


def find(address: str | None) -> str | None:
    """The cluster to use: the one this program is connected to, else one that was named or started by `ray start`; None: none."""
    if ray.is_initialized():
        return CONNECTED
    if named := address or os.environ.get("RAY_ADDRESS"):
        return named
    started = ray_address()
    return started if started is not None and _answers(started) else None


def join(found: str | None, *, start: bool, progress: Progress) -> Joined:
    """Connect to what `find` found, or start a private cluster.

    Raises:
        ClusterUnusable: nothing answers at the address; or there is none, and none may be started.
    """
    if found == CONNECTED:
        return Joined(private=False, ours=False)
    if found is not None:
        _probe(found)
        progress(f"connecting to Ray at {found}")
        _show_token()
        _init(address=found)
        return Joined(private=False, ours=True)
    if not start:
        raise ClusterUnusable("Ray", "no cluster is running here; start one with 'ray start --head', or set RAY_ADDRESS")
    progress("starting Ray on this machine")
    for name, value in _PRIVATE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        _start_private()
    except ClusterUnusable:
        progress("starting Ray once more")  # its own start-up has a hard limit of 15 s, too short on a busy machine
        _start_private()
    return Joined(private=True, ours=True)


def has_directory(namespace: str) -> bool:
    """Whether somebody has used this cluster in that namespace before."""
    return any(each == {"name": directory.NAME, "namespace": namespace} for each in ray.util.list_named_actors(all_namespaces=True))


def _show_token() -> None:
    """Let this process send the user's Ray token, if there is one and RAY_AUTH_MODE says nothing.

    Since 2.59 `ray start` asks for it, while `ray.init` does not send it by itself; a cluster that asks for none does not mind.
    """
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    try:
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
    except ImportError:  # an older Ray, without tokens
        return
    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def _start_private() -> None:
    _init(address="local", include_dashboard=False, object_store_memory=_PRIVATE_OBJECT_STORE_BYTES)


def _init(**options: Any) -> None:
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (RayError, ConnectionError, OSError, RuntimeError, ValueError) as error:
        ray.shutdown()
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ClusterUnusable(f"Ray at {options['address']}", f"{first}; 'baton doctor' looks closer") from None


def _answers(address: str) -> bool:
    try:
        _probe(address)
    except ClusterUnusable:
        return False
    return True


def _probe(address: str) -> None:
    parts = urlsplit(address if "://" in address else f"ray-gcs://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or (port is None and parts.scheme != "ray"):
        raise ClusterUnusable(f"RAY_ADDRESS {address!r}", "is no address; give HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host, port or 10001), timeout=PROBE_SECONDS).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        raise ClusterUnusable(
            f"Ray at {address}", f"nothing answers there ({reason}); is the cluster running? unset RAY_ADDRESS to start a private one"
        ) from None


def open_directory(settings: Settings, database: str, *, private: bool) -> tuple[ActorHandle[Any], directory.About]:
    """The directory of this cluster, started if there is none, and what it says of itself.

    Raises:
        ClusterUnusable: Ray's control store or the directory does not answer, or it cannot use its database.
    """
    _probe_control_store()
    nodes = _living_nodes()
    sqlite = database.startswith("sqlite")
    if sqlite and len(nodes) > 1:
        raise ClusterUnusable(
            database, f"is a file, and this cluster has {len(nodes)} nodes; set BATON_DATABASE_URL=postgresql://user@host/name"
        )
    config = directory.DirectoryConfig(
        namespace=settings.namespace,
        database=without_password(database),
        kind=f"local-{socket.gethostname()}" if private else "cluster",
        max_trees=settings.max_trees,
        warm_owners=settings.warm_owners,
        adopts=not private,
        pinned_node=nodes[0] if sqlite else None,
    )
    options = directory.detached(directory.NAME, settings.namespace, config.pinned_node)
    handle = directory.directory_class().options(**options).remote(config)
    try:
        about = ray.get(handle.about.remote(), timeout=ANSWER_SECONDS)
    except (RayError, GetTimeoutError) as error:
        raise ClusterUnusable("the directory actor", f"does not answer ({type(error).__name__}); 'baton doctor' looks closer") from None
    if about.fault is not None:
        raise ClusterUnusable("the cluster's database", about.fault)
    return handle, about


def open_reader(settings: Settings, database: str) -> ActorHandle[Any]:
    """The reader of this cluster, started if there is none. `database` is the URL without its password."""
    options = directory.detached(reader.NAME, settings.namespace, _living_nodes()[0] if database.startswith("sqlite") else None)
    actor: Any = ray.remote(reader.ReaderActor)
    handle: ActorHandle[Any] = actor.options(**options).remote(database)
    return handle


def _living_nodes() -> list[str]:
    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def _probe_control_store() -> None:
    """Ray itself, asked for an actor while its control store is away, waits for a minute and then ends this process."""
    if not ray.util.client.ray.is_connected():  # over ray:// the address is the cluster's own
        _probe(ray.get_runtime_context().gcs_address)
