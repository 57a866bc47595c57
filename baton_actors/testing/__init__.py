"""For tests, ours and those of users: models that cost nothing, a server that is as strict as the real one, a store's contract.

    from baton_actors.testing import FakeChatServer, ScriptedModel, calls, forbid_model_calls, says

    forbid_model_calls()  # in conftest.py: a test that reaches a real model fails


    def test_my_agent_reads_the_file(monkeypatch):
        script = ScriptedModel(calls(("read_file", {"path": "notes.txt"})), says("It is about boats."))
        with script, FakeChatServer(script) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
            assert my_agent("What is notes.txt about?") == "It is about boats."
            assert server.refused == []  # each request was one that the real endpoint accepts

A step that was not used, and a request for which the script has no step, fail the test. Conversations that run side by side have
scripts of their own: `model.on("text of the goal", says("…"))`. A function of the request's body may stand for a step.

`store_contract` is imported by itself, as it loads pytest and the store.
"""

from baton_actors.testing.forbidding import forbid_model_calls
from baton_actors.testing.scripted import Route, ScriptedModel
from baton_actors.testing.server import FakeChatServer, Received, Refused
from baton_actors.testing.steps import Step, calls, fails, raw, says
from baton_actors.testing.strict import objection

__all__ = [
    "FakeChatServer",
    "Received",
    "Refused",
    "Route",
    "ScriptedModel",
    "Step",
    "calls",
    "fails",
    "forbid_model_calls",
    "objection",
    "raw",
    "says",
]
