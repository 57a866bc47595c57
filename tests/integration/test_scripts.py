"""Programs that submit functions of their own: a script run by `python`, and cells executed as a notebook does."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import baton_actors

SCRIPT = '''
import json

import baton_actors as baton
import pricing
from pricing import with_tax

FACTOR = 3


class Order:
    def __init__(self, amount):
        self.amount = amount


def parent(task, ctx):
    """Uses a global, a class and a helper of this file, and a module beside it."""
    if ctx.breakdown:
        return sum(child.result for child in ctx.children)
    return baton.Spawned([baton.Child(f"price {n}", {"n": n}, worker=price) for n in range(1, 4)])


async def price(task, ctx):
    return with_tax(Order(scaled(task.context["n"])).amount)


def scaled(number):
    return number * FACTOR


if __name__ == "__main__":
    with baton.connect() as client:
        trees = [
            client.submit("sum the prices", worker=parent),
            client.submit("count the letters", worker=lambda task, ctx: len(task.goal) * FACTOR),
            client.submit("price by name", worker="pricing:by_name", context={"amount": 50}),
            client.submit("price by value", worker=pricing.by_name, context={"amount": 70}),
        ]
        print(json.dumps([tree.result() for tree in trees]))
'''

PRICING = """
RATE = 2


def with_tax(amount):
    return amount * RATE


def by_name(task, ctx):
    return with_tax(task.context["amount"])
"""

#: Executes cells one after the other in `__main__`, inside a running event loop, as a notebook's kernel does.
KERNEL = """
import ast, asyncio, inspect, json, sys

async def kernel(cells):
    for number, cell in enumerate(cells):
        value = eval(compile(cell, f"<cell {number}>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), globals())
        if inspect.iscoroutine(value):
            await value

asyncio.run(kernel(json.loads(sys.argv[1])))
"""

CELLS = [
    "import baton_actors as baton\nclient = baton.connect()",
    "factor = 2\ndef double(task, ctx):\n    return factor * task.context['n']",
    "tree = client.submit('double', worker=double, context={'n': 21})\nprint(await tree)",
    "factor = 10\nprint(client.submit('double', worker=double, context={'n': 4}).result())",
    "trees = [client.submit(f'say {n}', worker=lambda task, ctx: task.goal) for n in range(3)]\nprint(*await asyncio.gather(*trees))",
    "print([event.type async for event in tree.events()][-1])",
    "print(await client.submit('noisy', worker=lambda task, ctx: [print('line', n) for n in range(100_000)][:0]))",
    "try:\n    await client.submit('fail', worker=lambda task, ctx: 1 / 0)\nexcept baton.BatonFailed as no:\n    print(no.error_kind)",
    "client.close()",
]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Of a user without settings: no cluster, a database of its own, and a folder for Ray that is short enough for its sockets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "BATON_", "PG"))}
    ray_folder = tempfile.mkdtemp(prefix="baton-")
    yield {
        **kept,
        "BATON_DATABASE_URL": f"sqlite:///{tmp_path / 'baton.db'}",
        "PYTHONPATH": str(Path(baton_actors.__file__).parents[1]),
        "RAY_TMPDIR": ray_folder,
    }
    shutil.rmtree(ray_folder, ignore_errors=True)  # Ray's last processes may still be writing


def test_a_script_ships_its_functions_and_the_modules_beside_it(environment: dict[str, str], tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "pricing.py").write_text(PRICING)
    (project / "script.py").write_text(SCRIPT)
    done = python(str(project / "script.py"), cwd=elsewhere, environment=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [36, 51, 100, 140]
    assert done.stderr == ""


def test_cells_submit_and_await_inside_the_running_loop_of_a_notebook(environment: dict[str, str], tmp_path: Path) -> None:
    done = python("-c", KERNEL, json.dumps(CELLS), cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["42", "40", "say 0 say 1 say 2", "tree.completed", "[]", "error"]
    assert done.stderr == ""


def python(*arguments: str, cwd: Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=110)
