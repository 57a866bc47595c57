"""Histories broken at random: whatever comes in, the strict endpoint accepts what goes out."""

import http.client
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from baton_actors.agent.conversation import normalised_calls, repaired, shortened, unanswered
from baton_actors.testing import FakeChatServer, ScriptedModel, objection, says
from tests.unit.histories import broken_histories, junk, valid_histories


def answered_in_order(messages: list[dict[str, Any]]) -> bool:
    """Whether each call is followed by its answer, and no other answer is there."""
    asked = [call["id"] for each in messages for call in each.get("tool_calls", ())]
    return asked == [each["tool_call_id"] for each in messages if each["role"] == "tool"]


@given(valid_histories())
@settings(max_examples=200)
def test_valid_histories_are_left_alone(history: list[dict[str, Any]]) -> None:
    assert objection({"model": "m", "messages": history}) is None
    assert repaired(history) == history


@given(broken_histories() | st.lists(junk, max_size=4))
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_comes_in_is_accepted_as_it_goes_out(history: list[Any]) -> None:
    messages = repaired(history)
    assert not messages or objection({"model": "m", "messages": messages}) is None
    assert repaired(messages) == messages
    assert answered_in_order(messages)
    now = [{"role": "tool", "tool_call_id": call["id"], "content": "now"} for call in unanswered(history)]
    assert unanswered([*history, *now]) == []


@given(broken_histories(), st.integers(0, 20))
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_a_shortened_conversation_is_as_valid_as_before(history: list[Any], keep: int) -> None:
    cut = shortened(repaired(history), keep)
    assert not cut or objection({"model": "m", "messages": cut}) is None
    assert shortened(cut, keep) == cut
    shortened(history, keep)


@given(st.fixed_dictionaries({"role": st.just("assistant")}, optional={"content": junk, "tool_calls": junk | st.lists(junk), "x": junk}))
@settings(max_examples=200)
def test_a_fresh_reply_is_read_whatever_is_in_it(message: dict[str, Any]) -> None:
    once = normalised_calls(message)
    assert normalised_calls(once) == once
    assert json.dumps(once, ensure_ascii=False, allow_nan=False).encode()
    assert {**once, "tool_calls": 0}.keys() >= message.keys()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_thousand_broken_histories_pass_the_strict_server_over_http() -> None:
    model = ScriptedModel()
    model.always(says("ok"))
    with model, FakeChatServer(model) as server:
        connection = http.client.HTTPConnection(server.base_url.removeprefix("http://").removesuffix("/v1"))

        @given(broken_histories())
        @settings(max_examples=10_000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        def post(history: list[Any]) -> None:
            if messages := repaired(history):
                connection.request("POST", "/v1/chat/completions", json.dumps({"model": "scripted-1", "messages": messages}))
                response = connection.getresponse()
                assert (response.status, json.load(response)["choices"][0]["message"]["content"]) == (200, "ok")

        post()
        connection.close()
        assert server.refused == []
        assert len(server.requests) > 5_000
