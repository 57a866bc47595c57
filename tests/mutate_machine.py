"""Breaks the state machine on purpose, one line at a time, and checks that its tests notice: `python -m tests.mutate_machine [NAME ...]`.

Each mutation removes one invariant, guard or limit. It works on a copy; the sources are not touched. One that matches
the source not exactly once has gone stale, and the script says which; one that no test notices has survived, and it
ends with 1.
"""

# ruff: noqa: E501 -- the texts are lines of the source

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
MACHINE = ROOT / "baton_actors" / "machine.py"
#: Quick ones first, so that most mutants die within a second or two.
TESTS = ("losses", "passive", "budget", "fences", "saving", "cancel", "retry", "reopen", "", "properties")
#: Random lives per mutant that survives all other tests, and seconds after which a mutant counts as one that hangs.
EXAMPLES = 100
PATIENCE_SECONDS = 180


class Mutation(NamedTuple):
    """What is broken, the text that is replaced, and by what."""

    name: str
    old: str
    new: str


# fmt: off
MUTATIONS = [
    # fences
    Mutation("attempts are not fenced", " or node.baton.attempt != attempt or", " or"),
    Mutation("reports do not need a running baton", "node.baton.status is not Status.RUNNING or node.baton.attempt", "node.baton.attempt"),
    Mutation("passive batons take reports", " != attempt or node.baton.passive:", " != attempt:"),
    Mutation("attempt is not raised by a start", "_delay_over(baton), attempt=baton.attempt + 1)\n\n\ndef _delay", "_delay_over(baton))\n\n\ndef _delay"),
    Mutation("seq is not checked", "if event.seq != tree.seq + 1:", "if False:"),
    Mutation("seq does not advance", "        tree.seq = event.seq\n", "        tree.seq = tree.seq\n"),
    Mutation("illegal events pass", "    if after is None:\n        raise InvalidTransition(event.baton_id, before, event.type)", "    after = after or before"),
    Mutation("what is not born changes", "    if baton is None or TRANSITIONS.get((None, event.type)) is not baton.status:", "    if baton is None:"),
    Mutation("orphans are born", "if baton.parent_id is not None and baton.parent_id not in tree.nodes:", "if False:"),
    Mutation("a tree is submitted twice", "    if draft.tree.nodes:\n        return\n", ""),
    Mutation("saves are not fenced", "report.first_row is not None and report.first_row != node.spoken", "False"),
    Mutation("a save may leave a hole", "report.first_row != node.spoken", "report.first_row < node.spoken"),
    Mutation("checkpoints of functions are fenced", "report.first_row is not None and report.first_row != node.spoken", "report.first_row != node.spoken"),
    Mutation("a save takes no place", '                change["spoken"] = report.first_row + max(1, len(report.rows))\n', "                pass\n"),
    Mutation("a save without rows takes no place", "max(1, len(report.rows))", "len(report.rows)"),
    # starts
    Mutation("held is ignored when ready", "    if baton.held:\n        return\n    if baton.not_before", "    if baton.not_before"),
    Mutation("held is ignored by a start", "Status.PENDING or node.baton.held or node.baton.passive:", "Status.PENDING or node.baton.passive:"),
    Mutation("passive is started", "Status.PENDING or node.baton.held or node.baton.passive:", "Status.PENDING or node.baton.held:"),
    Mutation("passive is dispatched", "    elif baton.passive:\n", "    elif False:\n"),
    Mutation("not_before is ignored when ready", "if baton.not_before is not None and baton.not_before > draft.at:\n", "if False:\n"),
    Mutation("not_before is ignored by a start", "baton.not_before > draft.at:  # dispatched", "False:  # dispatched"),
    Mutation("not_before outlives the start", 'return {} if baton.not_before is None else {"not_before": None}', "return {}"),
    Mutation("a wake before its time dispatches", "baton.not_before is not None and draft.at >= baton.not_before:", "baton.not_before is not None:"),
    Mutation("a delay that has passed is not dispatched", "draft.at >= baton.not_before:\n        _make_ready(draft, baton)", "draft.at >= baton.not_before:\n        pass"),
    Mutation("release does not dispatch", '    _make_ready(draft, _changed(baton, {"held": False}))\n', ""),
    Mutation("an ended baton is released", '    if baton.status in ENDED:\n        raise NotAllowed(baton.id, f"has already ended ({baton.status})")\n    draft.add', "    draft.add"),
    # joins
    Mutation("parent is resumed with one child left", "parent.unfinished == count:", "parent.unfinished <= count + 1:"),
    Mutation("parent is resumed by every child", " and parent.unfinished == count:", ":"),
    Mutation("parent is never resumed", " and parent.unfinished == count:", " and False:"),
    Mutation("resumed parent is not dispatched", "        draft.effects.append(Dispatch(parent_id))\n", ""),
    Mutation("unfinished is not counted", "        self.nodes[baton.parent_id].unfinished += born\n", "        self.nodes[baton.parent_id].unfinished += 0\n"),
    Mutation("live is not counted", "        self.live += born\n", "        self.live += 0\n"),
    Mutation("ended is not counted", "        tree.ended -= born\n", "        tree.ended -= 0\n"),
    Mutation("Spawned([]) is not resumed", "    if not ids:\n", "    if False:\n"),
    Mutation("Spawned([]) is not dispatched", "        draft.effects.append(Dispatch(baton.id))\n\n\ndef _children", "\n\ndef _children"),
    Mutation("breakdown is not raised", "breakdown = node.breakdown + 1", "breakdown = max(1, node.breakdown)"),
    Mutation("results of all breakdowns are handed over", '"since": len(baton.children),', '"since": 0,'),
    Mutation("children of earlier breakdowns are forgotten", '"children": baton.children + ids,', '"children": ids,'),
    Mutation("a breakdown drops its state", '        "state": report.state,\n        "parked"', '        "parked"'),
    Mutation("depth does not grow", "depth=parent.depth + 1, goal", "depth=parent.depth, goal"),
    Mutation("a child's worker is not its parent's", "spec.worker or parent.worker", 'spec.worker or "agent"'),
    Mutation("the root's end is not told", "        draft.effects.append(End(Status.COMPLETED))\n", ""),
    Mutation("the root's failure is not told", "    draft.effects.append(End(Status.FAILED))\n", ""),
    # failures and retries
    Mutation("retries have no limit", "report.retryable and node.retries < limit:", "report.retryable and limit:"),
    Mutation("one retry too many", "node.retries < limit:", "node.retries <= limit:"),
    Mutation("every failure is retried", "    if report.retryable and node.retries", "    if node.retries"),
    Mutation("retries are not counted", '"retries": node.retries + 1,', '"retries": node.retries,'),
    Mutation("backoff below what was asked for", "max(0.0, after) + spread", "jitter * after + spread"),
    Mutation("backoff without jitter", "spread = jitter * min", "spread = min"),
    Mutation("backoff without limit", "min(BACKOFF_LIMIT, BACKOFF_SECONDS * 2.0**retries)", "BACKOFF_SECONDS * 2.0**retries"),
    Mutation("backoff does not double", "2.0**retries", "2.0"),
    Mutation("an endless wait is kept", " or not isfinite(after) else", " else"),
    Mutation("nobody wakes a retry", "        draft.effects.append(Wake(baton.id, not_before))\n        return\n", "        return\n"),
    # losses and hand-overs
    Mutation("losses are never counted", '        change["losses"] = baton.losses + 1\n', ""),
    Mutation("losses in a shared process count", 'if cause == "process" and not alone:', 'if cause == "process" and not alone and False:'),
    Mutation("losses of the node count", 'elif cause not in ("owner", "node"):', 'elif cause not in ("owner",):'),
    Mutation("losses of the owner count", 'elif cause not in ("owner", "node"):', 'elif cause not in ("node",):'),
    Mutation("a crashed process is shared again", '        change["alone"] = True\n', "        pass\n"),
    Mutation("five losses", "MAX_LOSSES = 4", "MAX_LOSSES = 5"),
    Mutation("no limit of losses", "if baton.losses + 1 >= MAX_LOSSES:", "if False:"),
    Mutation("progress does not reset losses", '{"state": report.state, "losses": 0}', '{"state": report.state}'),
    Mutation("a breakdown does not reset losses", '        "parked": report.state,\n        "losses": 0,\n', '        "parked": report.state,\n'),
    Mutation("a hand-over does not reset losses", '    change["losses"] = 0\n', ""),
    Mutation("what is lost is not dispatched", "    draft.add(EventType.RETRYING, baton, data, change)\n    draft.effects.append(Dispatch(baton.id))\n", "    draft.add(EventType.RETRYING, baton, data, change)\n"),
    Mutation("what is stuck is not stopped", 'if cause == "stuck":', "if False:"),
    Mutation("every hand-over is progress", "    if not moved_on:\n", "    if False:\n"),
    Mutation("the same state is progress", " or (report.state is not None and report.state != node.state)", " or report.state is not None"),
    Mutation("a new state is no progress", " or (report.state is not None and report.state != node.state)", ""),
    Mutation("progress of an earlier attempt counts", "moved_on = node.progressed == node.baton.attempt or", "moved_on = node.progressed > 0 or"),
    Mutation("a reservation is progress", '    if "state" in change:\n', '    if "state" in change or "reserved" in change:\n'),
    Mutation("an idle hand-over does not pay", '_lose(draft, node, "idle", change)', '_lose(draft, node, "idle", {})'),
    Mutation("a hand-over drops its state", '        change["state"] = report.state\n', "        pass\n"),
    # cascades
    Mutation("fail_fast is ignored", 'on_child_failure == "fail_fast" and', 'on_child_failure == "never" and'),
    Mutation("fail_fast without being asked", 'on_child_failure == "fail_fast" and', 'on_child_failure != "never" and'),
    Mutation("fail_fast miscounts", "                ended += 1\n", "                pass\n"),
    Mutation("cancel misses descendants", "    for below in reversed(list(_live_below(draft.tree, node))):", "    for below in ():"),
    Mutation("cancel misses grandchildren", "            if below.baton.status is Status.SPAWNED:\n                stack.append(below)\n", ""),
    Mutation("parents end before their children", "in reversed(list(_live_below(draft.tree, node))):", "in list(_live_below(draft.tree, node)):"),
    Mutation("cancel does not stop", "    _stop_if_running(draft, node.baton)\n    _add_failed", "    _add_failed"),
    Mutation("cancel does not stop descendants", "        _stop_if_running(draft, below.baton)\n", ""),
    Mutation("cancel of the last child does not resume", "    else:\n        _child_ended(draft, baton.parent_id, 1)\n\n\ndef _cancel_subtree", "\n\ndef _cancel_subtree"),
    Mutation("cancelling twice is an error", "    if baton.error_kind is ErrorKind.CANCELLED:\n        return\n", ""),
    Mutation("an ended baton is cancelled", '    if baton.status in ENDED:\n        raise NotAllowed(baton.id, f"has already ended ({baton.status})")\n    _cancel', "    _cancel"),
    Mutation("a human is stopped", "    if baton.status is Status.RUNNING and not baton.passive:\n", "    if baton.status is Status.RUNNING:\n"),
    # times
    Mutation("deadline is ignored", "elif baton.deadline is not None and draft.at >= baton.deadline:", "elif False:"),
    Mutation("deadline strikes early", "elif baton.deadline is not None and draft.at >= baton.deadline:", "elif baton.deadline is not None:"),
    Mutation("deadline is not told", "    if baton.deadline is not None:\n        draft.effects.append(Wake(baton.id, baton.deadline))\n    _make_ready", "    _make_ready"),
    Mutation("deadline does not stop", '        _stop_if_running(draft, baton)\n        _end_failed(draft, node, "its deadline', '        _end_failed(draft, node, "its deadline'),
    Mutation("times strike what has ended", "    if node is None or node.baton.status in ENDED:\n        return\n    baton = node.baton\n    seconds", "    if node is None:\n        return\n    baton = node.baton\n    seconds"),
    # guards and budgets
    Mutation("budget of batons off", "if tree.budget.batons is not None and total > tree.budget.batons:", "if False:"),
    Mutation("budget of batons off by one", "total > tree.budget.batons:", "total >= tree.budget.batons:"),
    Mutation("budgets of rounds, tokens and cost off", "if limit is not None and draft.tree.spent[key] + amount > limit:", "if False:"),
    Mutation("budgets off by one", "draft.tree.spent[key] + amount > limit:", "draft.tree.spent[key] > limit:"),
    Mutation("rounds cost nothing", '"rounds": node.baton.rounds + reserved.get("rounds", 0),', '"rounds": 0,'),
    Mutation("tokens cost nothing", '"tokens": tokens + reserved.get("tokens", 0),', '"tokens": 0,'),
    Mutation("cost costs nothing", '"cost": usage.get("cost", 0) + reserved.get("cost", 0),', '"cost": 0,'),
    Mutation("tokens written are free", ' + usage.get("tokens_out", 0)', ""),
    Mutation("what was lost is free", ' + usage.get("tokens_lost", 0)', ""),
    Mutation("budget of seconds off", "seconds is not None and draft.at >= _seconds_end(", "seconds is not None and False and (0, "),
    Mutation("seconds of the budget are not told", "    if draft.tree.budget.seconds is not None:\n        draft.effects", "    if False:\n        draft.effects"),
    Mutation("guard of batons off", "if total > tree.guards.batons:", "if False:"),
    Mutation("guard of children off", "if len(children) > tree.guards.children:", "if False:"),
    Mutation("guard of depth off", "if baton.depth + 1 > tree.guards.depth:", "if False:"),
    Mutation("guard of depth off by one", "if baton.depth + 1 > tree.guards.depth:", "if baton.depth > tree.guards.depth:"),
    Mutation("room forgets the depth", "    if baton.depth + 1 > guards.depth:\n        return 0\n", ""),
    Mutation("room at depth is off by one", "if baton.depth + 1 > guards.depth:\n        return 0", "if baton.depth > guards.depth:\n        return 0"),
    Mutation("room forgets the budget", "guards.batons if limit is None else min(limit, guards.batons)", "guards.batons"),
    Mutation("room forgets the guard of batons", "min(limit, guards.batons)", "limit"),
    Mutation("room forgets the guard of children", "min(guards.children, batons - len(tree.nodes))", "batons - len(tree.nodes)"),
    Mutation("room forgets what exists", "batons - len(tree.nodes)))", "batons))"),
    Mutation("room may be negative", "return max(0, min(", "return max(-9, min("),
    Mutation("own goal may be delegated", "if len(children) == 1 and children[0]", "if False and children[0]"),
    Mutation("own goal is compared to the letter", "children[0].goal.strip().casefold() == baton.goal.strip().casefold()", "children[0].goal == baton.goal"),
    Mutation("functions are guarded", "    if baton.worker != AGENT:\n        return None\n", ""),
    Mutation("spawning nothing is guarded", "    if not children:\n        return None\n    baton", "    baton"),
    Mutation("a child may have more tools", "if foreign := set(spec.tools or ()) - allowed:", "if foreign := set():"),
    Mutation("a child has no tools unless named", '            fields["tools"] = parent.tools\n', "            pass\n"),
    Mutation("reservations do not add up", "{key: node.reserved.get(key, 0) + amount for", "{key: amount for"),
    Mutation("reservations are not settled", '        change["reserved"] = {}\n', "        pass\n"),
    Mutation("usage is not settled", '        change["usage"] = _added(node.baton.usage, spending.usage)\n', "        pass\n"),
    Mutation("rounds are not settled", '        change["rounds"] = node.baton.rounds + spending.rounds\n', "        pass\n"),
    Mutation("nothing is written off", "    if not node.reserved:\n        return {}\n", '    if node.reserved or True:\n        return {"reserved": {}}\n'),
    Mutation("usage does not add up", "{key: usage.get(key, 0) + amount for", "{key: amount for"),
    Mutation("the pool is not charged", "        tree._spend(account, _spending(node))\n", "        pass\n"),
    Mutation("the pool is empty after a load", "            tree._spend({}, _spending(node))\n", ""),
    # passive workers
    Mutation("any baton takes an answer", "if baton.passive and baton.status is Status.RUNNING:", "if baton.status is Status.RUNNING:"),
    Mutation("another answer is accepted", "Status.COMPLETED and baton.result == command.value):", "Status.COMPLETED):"),
    Mutation("the same answer is refused", "    elif not (baton.passive and baton.status is Status.COMPLETED and baton.result == command.value):", "    else:"),
    # retry
    Mutation("generation is not raised", '"generation": baton.generation + 1,', '"generation": baton.generation,'),
    Mutation("losses outlive a retry", '        "error_kind": None,\n        "losses": 0,\n', '        "error_kind": None,\n'),
    Mutation("retries outlive a retry", '        "retries": 0,\n        "not_before"', '        "not_before"'),
    Mutation("a result outlives a retry", '        "result": None,\n', ""),
    Mutation("partial outlives a retry", '        "partial": False,\n', ""),
    Mutation("an error outlives a retry", '        "error": None,\n', ""),
    Mutation("held outlives a retry", '        "held": False,\n        "deadline"', '        "deadline"'),
    Mutation("a passed deadline outlives a retry", "draft.at + baton.deadline - began", "baton.deadline"),
    Mutation("a new deadline is not told", "    if deadline is not None:\n        draft.effects.append(Wake(baton.id, deadline))\n", ""),
    Mutation("parked state is not restored", '{**_new_life(draft, node), "state": node.parked}', "_new_life(draft, node)"),
    Mutation("failed children are not retried", "child.baton.status is Status.FAILED]\n", "False]\n"),
    Mutation("completed children are retried", "again = [child for child in children if child.baton.status is Status.FAILED]", "again = children"),
    Mutation("ancestors are not reopened", "        _reopen_spawned(draft, ancestor, 1)\n", "        pass\n"),
    Mutation("a running ancestor is reopened", "        if parent.baton.status in LIVE:\n", "        if False:\n"),
    Mutation("an earlier breakdown is reopened", "        if below.baton.id not in parent.current_children:\n", "        if False:\n"),
    Mutation("what has not failed is retried", "    if node.baton.status is not Status.FAILED:\n", "    if False:\n"),
    Mutation("a retry drops its budget", "budget, since = tree.budget.plus(command.budget), draft.at", "budget, since = tree.budget, draft.at"),
    Mutation("a living tree takes no budget", "    if not ended and not added:\n", "    if not ended:\n"),
    Mutation("seconds do not begin anew", "draft.at if ended else tree.budget_since", "tree.budget_since"),
    Mutation("a reopened tree is not told its seconds", "    if budget.seconds is not None:\n", "    if False:\n"),
    # recovery
    Mutation("recovery forgets pending batons", "        if baton.status is Status.PENDING:\n            _make_ready(draft, baton)\n        elif", "        if"),
    Mutation("recovery forgets running batons", "not in command.known:\n            _lose(", "not in command.known and False:\n            _lose("),
    Mutation("recovery loses what is known", " and (baton.id, baton.attempt) not in command.known:", ":"),
    Mutation("recovery forgets deadlines", "        if baton.status in LIVE and baton.deadline is not None:\n", "        if False:\n"),
    Mutation("recovery forgets seconds", "    if tree.budget.seconds is not None:\n", "    if False:\n"),
    Mutation("recovery revives an ended tree", "    if not tree.nodes or tree.root.baton.status in ENDED:\n", "    if not tree.nodes:\n"),
]
# fmt: on


def stale(source: str) -> list[str]:
    """The names of mutations that do not match the source exactly once, or that change nothing."""
    return [each.name for each in MUTATIONS if source.count(each.old) != 1 or each.old == each.new]


def copy_to(place: Path) -> None:
    """The package and the machine's tests, as a project of their own."""
    shutil.copytree(ROOT / "baton_actors", place / "baton_actors", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "tests" / "unit").mkdir(parents=True)
    for name in ("drive", *(_test_name(each) for each in TESTS)):
        shutil.copy(ROOT / "tests" / "unit" / f"{name}.py", place / "tests" / "unit")


def _test_name(part: str) -> str:
    return f"test_machine_{part}" if part else "test_machine"


def run_tests(place: Path) -> tuple[int, str]:
    """The exit code of the machine's tests there, and the first test that failed; fewer random lives, the same ones each time."""
    options = ["-x", "-q", "--no-header", "--tb=no", "--import-mode=importlib", "-m", "not long", "-o", "markers=long: takes longer"]
    fixed = ["-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=0"]
    files = [f"tests/unit/{_test_name(each)}.py" for each in TESTS]
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1", "BATON_PROPERTY_EXAMPLES": str(EXAMPLES)}
    command = [sys.executable, "-m", "pytest", *options, *fixed, *files]
    try:
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return 1, "hanging"
    failed = re.search(r"^FAILED \S+?::(\S+)", done.stdout, re.MULTILINE)
    return done.returncode, failed[1] if failed else done.stdout[-2_000:] + done.stderr[-2_000:]


def main(names: list[str]) -> int:
    """Run the mutations of these names, or all; the exit code."""
    source = MACHINE.read_text()
    if old := stale(source):
        print(f"stale, does not match {MACHINE.name} exactly once: {', '.join(old)}")
        return 1
    chosen = [each for each in MUTATIONS if not names or each.name in names]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        copy_to(place)
        copied = place / "baton_actors" / MACHINE.name
        code, told = run_tests(place)
        if code != 0:
            print(f"the tests fail without any mutation: {told}")
            return 1
        bad = [each.name for number, each in enumerate(chosen, 1) if not _dies(each, f"{number:3}/{len(chosen)}", source, copied, place)]
    print(f"{len(chosen) - len(bad)} of {len(chosen)} mutants killed" + (f"; survived or broken: {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


def _dies(mutation: Mutation, place_in_line: str, source: str, copied: Path, place: Path) -> bool:
    copied.write_text(source.replace(mutation.old, mutation.new))
    began = time.monotonic()
    code, told = run_tests(place)
    fate = {0: "SURVIVED", 1: f"killed by {told}"}.get(code, f"BROKEN: {told}")
    print(f"{place_in_line}  {mutation.name}: {fate}  ({time.monotonic() - began:.0f} s)", flush=True)
    return code == 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
