"""Who asks where a tree is looks again when that tree moves, and at no other time."""

import asyncio
from collections import Counter

from baton_actors.runtime.publication import Found
from baton_actors.runtime.whereabouts import Whereabouts

TREES = [f"bt_{number}" for number in range(200)]


def test_a_change_of_one_tree_makes_nobody_look_who_asks_for_another() -> None:
    async def story() -> None:
        places, looks, here = Whereabouts(), Counter[str](), set[str]()

        async def ask(root_id: str) -> Found | None:
            async def look() -> Found | None:
                looks[root_id] += 1
                return Found("here", root_id) if root_id in here else None

            return await places.until(root_id, look)

        asking = [asyncio.create_task(ask(root_id)) for root_id in TREES]
        second = asyncio.create_task(ask(TREES[0]))
        await all_have(looks, 201)
        here.add(TREES[0])
        places.wake(TREES[0])
        assert await asking[0] == await second == Found("here", TREES[0])
        assert looks.total() == 203
        here.update(TREES)
        places.wake_all()
        await asyncio.gather(*asking)
        assert looks.total() == 203 + 199
        places.wake("bt_unknown")
        assert places._waiting == {}

    asyncio.run(story())


async def all_have(looks: Counter[str], total: int) -> None:
    while looks.total() < total:
        await asyncio.sleep(0)
