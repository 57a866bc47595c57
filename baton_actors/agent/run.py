"""The way into the agent: what a worker process calls for a baton whose worker is `agent`."""

import asyncio
import logging
from weakref import WeakKeyDictionary

from baton_actors.agent.access import Access, Wishes, choose, is_tiny
from baton_actors.agent.chat import ChatModel, listed_models
from baton_actors.agent.host import Host
from baton_actors.agent.inputs import read_inputs
from baton_actors.agent.memory import Memory
from baton_actors.agent.model import Model, ModelError, Reply, Request
from baton_actors.agent.profile import LARGE, MEDIUM, SMALL, Profile
from baton_actors.agent.rounds import AgentRun
from baton_actors.baton import Baton, Failed, Outcome
from baton_actors.capabilities.builtin import BUILTINS, usable
from baton_actors.capabilities.catalogue import Catalogue, catalogue
from baton_actors.errors import InvalidInput, ModelUnusable
from baton_actors.settings import load_settings, model_key

log = logging.getLogger(__name__)

#: The tool that reads on in a child's result.
READ_RESULT = "read_result"

#: One client for each address in each event loop, since its connections belong to the loop.
_clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str | None, float], ChatModel]]" = WeakKeyDictionary()


async def run_agent(host: Host) -> Outcome:
    """One run of an agent's baton, to its outcome."""
    access = Access.model_validate(host.agent)
    try:
        name, url = await _chosen(host.baton, access)
        model: Model = LocalModel(host, access.timeout) if url is None else _client(url, model_key(), access.timeout)
        profile = LARGE if url is not None else SMALL if is_tiny(name) else MEDIUM
        tools = await asyncio.to_thread(tools_of, host, access, profile)
        inputs = await asyncio.to_thread(read_inputs, host.baton.context, access.place, profile.input_characters)
    except (InvalidInput, ModelUnusable) as error:
        return Failed(str(error), retryable=isinstance(error, ModelUnusable))
    if profile is not LARGE:
        access = access.model_copy(update={"dialect": "actions"})
    memory = Memory(await host.conversation(), host.state, host.baton.generation)
    key = f"{name} at {url or 'this node'}"
    run = AgentRun(host, model, name, key, access=access, profile=profile, memory=memory, catalogue=tools, inputs=inputs)
    return await run.outcome()


async def _chosen(baton: Baton, access: Access) -> tuple[str, str | None]:
    """Name and address of a baton's model. What was not known at submission, since its tree began with a function, is chosen now."""
    if baton.model is not None and (access.local or access.base_url is not None):
        return baton.model, access.base_url

    def choice() -> tuple[str, str | None]:
        settings = load_settings()
        wishes = Wishes(baton.model or settings.model, access.base_url, model_key(), settings.openai_model)
        return choose(wishes, listed_models, log.info)

    return await asyncio.to_thread(choice)


class LocalModel:
    """This node's own model; it is asked for its address before each call, since one that was started again has another."""

    def __init__(self, host: Host, timeout: float) -> None:
        self._host = host
        self._timeout = timeout

    async def answer(self, request: Request) -> Reply:
        """See `Model.answer`."""
        try:
            url = await self._host.local_base_url()
        except (InvalidInput, ModelUnusable) as error:
            raise ModelError(str(error)) from None
        return await _client(url, None, self._timeout).answer(request)


def _client(url: str, key: str | None, timeout: float) -> ChatModel:
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    known = clients.get((url, key, timeout))
    if known is None:
        known = clients[url, key, timeout] = ChatModel(url, key, timeout=timeout)
    return known


def tools_of(host: Host, access: Access, profile: Profile) -> Catalogue:
    """The tools of a task. A small model gets only those that were named, since each takes room in its prompt; `read_result`
    belongs to every other that has children's results, whatever was named.

    Raises:
        InvalidInput: one of them cannot be found or used.
    """
    context, fetch = host.baton.context, tuple(access.fetch)
    named = host.baton.tools
    if named is None:
        named = [] if profile.small else [name for name in BUILTINS if usable(name, context, access.place, fetch)]
    references = [name for name in named if name != READ_RESULT]
    if host.breakdown and not profile.small:
        references.append(READ_RESULT)
    return catalogue(references, host.function, context=context, folder=access.place, fetch=fetch)
