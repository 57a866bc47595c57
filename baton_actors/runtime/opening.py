"""How a tree begins: what a client hands in, and the first decision about it."""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

from baton_actors.baton import AGENT, Baton, Budget, Guards
from baton_actors.commands import Submit
from baton_actors.machine import Node, Tree
from baton_actors.store import Group, LoadedTree, TreeRow


@dataclass(frozen=True, slots=True)
class Submission:
    """A tree to be, as it travels from a client.

    Attributes:
        root: the root baton. functions: pickled code by hash. archive: a zip of the modules that it needs.
        agent: settings that its agents share, without secrets.
    """

    root: Baton
    budget: Budget
    guards: Guards
    idempotency_key: str | None = None
    functions: dict[str, bytes] = field(default_factory=dict)
    archive: bytes | None = None
    agent: dict[str, Any] = field(default_factory=dict)

    @property
    def asks_local_model(self) -> bool:
        """Whether its root is an agent that no model is named for but the small one of this machine."""
        return self.root.worker == AGENT and self.agent.get("local") is True

    def dated(self, now: int) -> "Submission":
        """The same with its birth at another time, milliseconds since 1970."""
        return replace(self, root=self.root.model_copy(update={"created_at": now, "updated_at": now}))

    def tree(self) -> Tree:
        """The tree before its first command."""
        return Tree(self.root.id, budget=self.budget, budget_since=self.root.created_at, guards=self.guards)

    def command(self) -> Submit:
        """Its first command."""
        return Submit(self.root.created_at, self.root)

    def row(self, cluster_id: str, owner: str | None, owner_pid: int | None, wake_at: int | None) -> TreeRow:
        """Its row in `trees`: epoch 1 with an owner, 0 without."""
        return TreeRow(
            root_id=self.root.id,
            cluster_id=cluster_id,
            owner=owner,
            owner_pid=owner_pid,
            epoch=0 if owner is None else 1,
            wake_at=wake_at,
            budget=budget_row(self.budget, self.root.created_at, self.guards),
            idempotency_key=self.idempotency_key,
            code={"archive": digest(self.archive) if self.archive else None, "functions": sorted(self.functions)},
            created_at=self.root.created_at,
            agent=self.agent,
        )

    def add_code(self, group: Group) -> None:
        """Put its code into the transaction that creates it."""
        group.code.update({name: ("function", data) for name, data in self.functions.items()})
        if self.archive:
            group.code[digest(self.archive)] = ("archive", self.archive)


def digest(data: bytes) -> str:
    """The name of a piece of code."""
    return hashlib.sha256(data).hexdigest()


def budget_row(budget: Budget, since: int, guards: Guards) -> dict[str, Any]:
    """The column `trees.budget`."""
    return {"limits": budget.model_dump(exclude_none=True), "since": since, "guards": guards.model_dump()}


def loaded_tree(loaded: LoadedTree) -> Tree:
    """The tree in memory, as the database holds it."""
    budget = loaded.tree.budget
    return Tree.load(
        loaded.tree.root_id,
        loaded.tree.seq,
        (Node(baton, **beside) for baton, beside in loaded.batons),
        budget=Budget(**budget["limits"]),
        budget_since=budget["since"],
        guards=Guards(**budget["guards"]),
    )
