"""What happened in a run, as its own clients and injuries tell it: JSON lines, each with the time and a kind.

submitted  key, plan, root_id                      a tree was acknowledged
ordered    order (cancel, retry, answer), root_id, baton_id, value, outcome (done, refused, unknown), why
told       root_id, status, result, error_kind, generation       what a client that waited was told
heard      root_id, events: [[seq, type], …]       what a subscriber was told, in that order
seen       root_id, epoch, owner, seq              one look at the row of a tree
injected   what, …                                 an injury
surprised  call, error                             an exception that is none of ours
"""

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any


class History:
    """Written by many threads, one line at a time; what was written before a crash of the test is there."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._out = file.open("w", buffering=1)

    def add(self, kind: str, **what: Any) -> None:
        line = {"at": time.time_ns() // 1_000_000, "kind": kind, **what}
        with self._lock:
            self.lines.append(line)
            self._out.write(json.dumps(line) + "\n")

    def close(self) -> None:
        self._out.close()

    def counts(self) -> dict[str, int]:
        """How often each injury was done, and each other kind of line was written."""
        with self._lock:
            return dict(Counter(f"injected {line['what']}" if line["kind"] == "injected" else line["kind"] for line in self.lines))
