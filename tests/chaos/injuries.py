"""What is done to a cluster while it works, by a seed: processes killed and stopped, nodes lost, the database cut off and restarted."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from ray.cluster_utils import Cluster

from baton_actors.runtime.crash_points import POINTS, Deed
from baton_actors.testing.crash_points import Crash, CrashPoints
from tests.chaos.history import History
from tests.chaos.processes import Kind, pids
from tests.chaos.server import Mode, Server

#: Seconds between two injuries.
PAUSES = (0.2, 2.0)
#: What happens at a place of the runtime.
DEEDS: tuple[Deed, ...] = ("kill", "kill", "stop", "delay")
#: Seconds that a process is stopped: mostly short, and sometimes so long that another takes its place.
SHORT_STOPS, LONG_STOPS = (0.2, 3.0), (12.0, 18.0)
#: Seconds until a lost node is replaced, and for which the database is away.
NODE_AWAY, SERVER_AWAY = (3.0, 10.0), (0.1, 3.0)


@dataclass
class Injuries:
    """Call `run` in the thread that made the cluster, then `mend`.

    Args:
        points: at which the cluster's processes look. node: the options of a second node that may be lost; None: there is none.
        server: of PostgreSQL; None: it is SQLite.
    """

    cluster: Cluster
    history: History
    chance: random.Random
    points: CrashPoints
    node: dict[str, Any] | None = None
    server: Server | None = None
    _stopped: dict[int, threading.Timer] = field(default_factory=dict)
    _node_back_at: float | None = None
    _planned: ExitStack = field(default_factory=ExitStack)

    def run(self, seconds: float) -> None:
        """Injure for so long."""
        deeds: dict[Callable[[], None], int] = {
            lambda: self._kill("worker"): 5,
            lambda: self._kill("owner"): 4,
            lambda: self._kill("directory"): 2,
            lambda: self._stop("worker"): 2,
            lambda: self._stop("owner"): 3,
            lambda: self._stop("directory"): 1,
            self._plan_crash: 6,
        }
        if self.server is not None:
            deeds |= {self._drop_connections: 2, self._restart_server: 1}
        if self.node is not None:
            deeds[self._lose_node] = 1
        end = time.monotonic() + seconds
        pause = threading.Event()
        while time.monotonic() < end:
            pause.wait(self.chance.uniform(*PAUSES))
            if self._node_back_at is not None and time.monotonic() > self._node_back_at:
                self._bring_node()
            self.chance.choices(list(deeds), list(deeds.values()))[0]()

    def mend(self) -> None:
        """Nothing stays stopped or lost, nothing is planned any more."""
        self._planned.close()
        for pid, timer in list(self._stopped.items()):
            timer.cancel()
            self._go_on(pid)
        if self._node_back_at is not None:
            self._bring_node()

    # ------------------------------------------------------------ processes

    def _kill(self, kind: Kind) -> None:
        if (pid := self._victim(kind)) is not None:
            self.history.add("injected", what=f"kill {kind}", pid=pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _stop(self, kind: Kind) -> None:
        seconds = self.chance.uniform(*(LONG_STOPS if self.chance.random() < 0.2 else SHORT_STOPS))
        if (pid := self._victim(kind)) is not None:
            self.history.add("injected", what=f"stop {kind}", pid=pid, seconds=round(seconds, 2))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                timer = self._stopped[pid] = threading.Timer(seconds, self._go_on, (pid,))
                timer.daemon = True
                timer.start()

    def _victim(self, kind: Kind) -> int | None:
        draw = self.chance.random()
        found = [pid for pid in pids(self.cluster, kind) if pid not in self._stopped]
        return found[int(draw * len(found))] if found else None

    def _go_on(self, pid: int) -> None:
        if self._stopped.pop(pid, None) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _plan_crash(self) -> None:
        """Whoever next gets to a place of the runtime is killed, stopped or delayed there; what was planned before is over."""
        self._planned.close()
        name, do = self.chance.choice(list(POINTS)), self.chance.choice(DEEDS)
        crash = self._planned.enter_context(
            self.points.at(name, do, seconds=self.chance.uniform(*SHORT_STOPS), nth=self.chance.randint(1, 5))
        )
        self._planned.callback(self._note_crash, f"{do} at {name}", crash)

    def _note_crash(self, what: str, crash: Crash) -> None:
        if crash.happened:
            self.history.add("injected", what=what, pid=crash.pid)

    # ------------------------------------------------------------ nodes

    def _lose_node(self) -> None:
        away = self.chance.uniform(*NODE_AWAY)
        if self._node_back_at is None:
            self.history.add("injected", what="lose node", seconds=round(away, 2))
            self.cluster.remove_node(next(iter(self.cluster.worker_nodes)), allow_graceful=False)
            self._node_back_at = time.monotonic() + away

    def _bring_node(self) -> None:
        self._node_back_at = None
        self.cluster.add_node(**(self.node or {}))
        self.history.add("mended", what="node")

    # ------------------------------------------------------------ the database

    def _drop_connections(self) -> None:
        assert self.server is not None
        self.history.add("injected", what="drop connections", count=self.server.drop_connections())

    def _restart_server(self) -> None:
        assert self.server is not None
        away = self.chance.uniform(*SERVER_AWAY)
        modes: tuple[Mode, ...] = ("fast", "immediate")
        mode = self.chance.choice(modes)
        self.history.add("injected", what="restart database", mode=mode, seconds=round(away, 2))
        self.server.stop(mode)
        threading.Event().wait(away)
        self.server.start()
