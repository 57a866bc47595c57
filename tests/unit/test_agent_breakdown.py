"""Agents that hand parts of their task on: by `spawn_task`, by judgement, when needed."""

import json
from pathlib import Path
from typing import Any

import pytest

from baton_actors.agent.profile import SMALL
from baton_actors.baton import ErrorKind, Spawned, Status
from baton_actors.testing import ScriptedModel, calls, fails, says
from tests.unit.agents import Stage

pytestmark = pytest.mark.usefixtures("without_pauses")


def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def broken() -> str:
    """Is broken."""
    raise OSError("no such thing")


def fits(reason: str = "small") -> Any:
    return says(json.dumps({"reason": reason, "fits": True, "rounds": 1, "subtasks": []}))


def breaks(*goals: str) -> Any:
    return says(json.dumps({"reason": "two things", "fits": False, "rounds": 9, "subtasks": [{"goal": goal} for goal in goals]}))


def names(body: dict[str, Any]) -> list[str]:
    return [each["function"]["name"] for each in body.get("tools", [])]


def answers(body: dict[str, Any]) -> dict[str, str]:
    return {message["tool_call_id"]: message["content"] for message in body["messages"] if message["role"] == "tool"}


def spawned(stage: Stage) -> list[Any]:
    return [outcome for _, outcome in stage.outcomes if isinstance(outcome, Spawned)]


# ---------------------------------------------------------------- spawn_task


def test_three_children_beside_another_tool_and_four_answers_under_their_own_ids() -> None:
    with ScriptedModel() as model:
        model.on("part a", says("A"))
        model.on("part b", says("B"))
        model.on("part c", fails(400, "no such luck"))
        model.on(
            "The whole",
            calls(
                ("spawn_task", {"goal": "part a"}),
                ("look", {"at": "x"}),
                ("spawn_task", {"goal": "part b"}),
                ("spawn_task", {"goal": "part c"}),
            ),
            says("all together"),
        )
        stage = Stage(model)
        root = stage.run("The whole", breakdown="estimate", tools=[look])
    assert root.result == "all together"
    [outcome] = spawned(stage)
    assert [child.goal for child in outcome.children] == ["part a", "part b", "part c"]
    resumed = next(body for body in reversed(model.requests) if body["messages"][1]["content"].startswith("The whole"))
    told = answers(resumed)
    assert (told["call_1_0"], told["call_1_1"], told["call_1_2"]) == ("A", "seen x", "B")
    assert told["call_1_3"].startswith("This subtask failed (error): the server answered 400: no such luck")
    assert model.refused == []


def test_two_other_tools_of_which_one_fails_are_stored_before_parking_and_run_once() -> None:
    ran = []

    def note(text: str) -> str:
        """Note it."""
        ran.append(text)
        return "noted"

    with ScriptedModel() as model:
        model.on("the part", says("done"))
        model.on("The whole", calls(("note", {"text": "x"}), ("spawn_task", {"goal": "the part"}), ("broken", {})), says("fine"))
        stage = Stage(model)
        stage.run("The whole", breakdown="estimate", tools=[note, broken])
    assert ran == ["x"]
    rows = stage.records[stage.log[0][0]].rows
    assert [row["role"] for row in rows] == ["system", "user", "assistant", "tool", "tool", "tool", "assistant"]


def test_a_child_sees_its_own_context_laid_over_its_parents_and_the_parents_tools() -> None:
    with ScriptedModel() as model:
        model.on("the part", says("done"))
        model.on("The whole", calls(("spawn_task", {"goal": "the part", "context": {"b": 2}})), says("fine"))
        stage = Stage(model)
        stage.run("The whole", breakdown="estimate", tools=[look], context={"a": 1, "b": 1})
    child = next(record.baton for record in stage.records.values() if record.baton.depth)
    assert child.context == {"a": 1, "b": 2}
    assert child.tools == ["stage:look"]


def test_a_child_can_be_given_fewer_tools_and_never_more() -> None:
    with ScriptedModel() as model:
        model.on("the part", says("done"))
        model.on(
            "The whole",
            calls(("spawn_task", {"goal": "other part", "tools": ["rm"]}), ("spawn_task", {"goal": "the part", "tools": []})),
            says("fine"),
        )
        stage = Stage(model)
        stage.run("The whole", breakdown="estimate", tools=[look])
    [outcome] = spawned(stage)
    assert [(child.goal, child.tools) for child in outcome.children] == [("the part", [])]
    assert "no tool 'rm' to hand on; there are: look" in answers(model.requests[-1])["call_1_0"]


def test_the_tasks_own_goal_is_not_handed_on() -> None:
    with ScriptedModel(calls(("spawn_task", {"goal": "the  WHOLE."})), says("did it myself")) as model:
        assert Stage(model).run("The whole", breakdown="estimate").result == "did it myself"
    assert "your own task" in answers(model.requests[1])["call_1_0"]


@pytest.mark.parametrize(
    "arguments", [{}, {"goal": " "}, {"goal": 3}, {"goal": "x", "context": [1]}, {"goal": "x", "tools": "all"}, "{", "[]"]
)
def test_a_spawn_that_cannot_be_made_is_told(arguments: Any) -> None:
    with ScriptedModel(calls(("spawn_task", arguments)), says("ok")) as model:
        assert Stage(model).run("The whole", breakdown="estimate").result == "ok"
    assert "othing was spawned" in answers(model.requests[1])["call_1_0"]


def test_spawn_task_is_hidden_when_no_child_can_be_afforded_and_when_never() -> None:
    for room, policy, there in ((5, "estimate", True), (0, "estimate", False), (5, "never", False)):
        with ScriptedModel(says("ok")) as model:
            Stage(model, room=room).run("The whole", breakdown=policy, tools=[look])
        assert ("spawn_task" in names(model.requests[0])) is there


def test_more_children_than_can_be_afforded_are_told_so() -> None:
    with ScriptedModel() as model:
        model.on("part", says("done")).always(says("done"))
        model.on("The whole", calls(*(("spawn_task", {"goal": f"part {n}"}) for n in range(4))), says("fine"))
        stage = Stage(model, room=2)
        assert stage.run("The whole", breakdown="estimate").result == "fine"
    assert len(spawned(stage)[0].children) == 2
    assert "can be afforded" in answers(model.requests[-1])["call_1_3"]


def test_a_context_that_names_files_beyond_the_parents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "other.txt").write_text("other")
    with ScriptedModel(calls(("spawn_task", {"goal": "read", "context": {"file": str(tmp_path / "other.txt")}})), says("ok")) as model:
        Stage(model).run("The whole", breakdown="estimate", context={"file": str(tmp_path / "mine.txt")})
    assert "was not given" in answers(model.requests[1])["call_1_0"]


def test_results_of_many_children_stay_within_the_prompt_and_are_read_on() -> None:
    fact = "The password is swordfish."
    with ScriptedModel() as model:
        for n in range(7):
            model.on(f"part {n}", says("x" * 30_000 + (fact if n == 4 else "")))

        def read_on(body: dict[str, Any]) -> Any:
            cut = answers(body)["call_1_4"]
            id = cut.rpartition('read_result(id="')[2].partition('"')[0]
            return calls(("read_result", {"id": id, "offset": 29_990}))

        model.on("The whole", calls(*(("spawn_task", {"goal": f"part {n}"}) for n in range(7))), read_on, says("swordfish"))
        assert Stage(model).run("The whole", breakdown="estimate", tools=[look]).result == "swordfish"
    assert len(json.dumps(model.requests[-2])) < 60_000
    assert fact in answers(model.requests[-1])["call_2_0"]


def test_read_result_is_offered_once_there_are_results() -> None:
    with ScriptedModel() as model:
        model.on("the part", says("done"))
        model.on("The whole", calls(("spawn_task", {"goal": "the part"})), says("fine"))
        Stage(model).run("The whole", breakdown="estimate", tools=[look])
    assert names(model.requests[0]) == ["look", "spawn_task"]
    assert names(model.requests[-1]) == ["look", "read_result", "spawn_task"]


def test_a_crash_before_the_breakdown_was_reported_spawns_the_same_children() -> None:
    with ScriptedModel() as model:
        model.on("the part", says("done"))
        model.on("The whole", calls(("look", {"at": "x"}), ("spawn_task", {"goal": "the part"})), says("fine"))
        stage = Stage(model)
        stage.crash_after = lambda data: data["kind"] == "tool"
        assert stage.run("The whole", breakdown="estimate", tools=[look]).result == "fine"
    assert len(spawned(stage)) == 1


def test_a_crash_after_the_resume_sees_the_childrens_results_again() -> None:
    with ScriptedModel() as model:
        model.on("the part", says("done"))
        model.on("The whole", calls(("spawn_task", {"goal": "the part"})), calls(("look", {"at": "x"})), says("fine"))
        stage = Stage(model)
        stage.crash_after = lambda data: data.get("round") == 2
        assert stage.run("The whole", breakdown="estimate", tools=[look]).result == "fine"
    assert answers(model.requests[-1]) == {"call_1_0": "done", "call_2_0": "seen x"}


# ---------------------------------------------------------------- judgement


def test_auto_has_the_root_judged_and_logs_why() -> None:
    with ScriptedModel(fits("one small thing"), says("42")) as model:
        stage = Stage(model)
        assert stage.run("What is it?").result == "42"
    [decision] = stage.data("decision")
    assert (decision["broken_down"], decision["breakdown"], decision["judged_rounds"]) == (False, "auto", 1)
    assert "one small thing" in decision["reason"]
    assert model.requests[0]["response_format"]["type"] == "json_schema"
    assert "tools" not in model.requests[0]


def test_a_judgement_of_parts_breaks_down_and_the_parent_is_told_the_results() -> None:
    with ScriptedModel() as model:
        model.on(lambda body: "response_format" in body, breaks("go east", "go west"))
        model.on("go east", says("sand"))
        model.on("go west", says("sea"))
        model.on("Explore", says("sand and sea"))
        stage = Stage(model)
        root = stage.run("Explore")
    assert root.result == "sand and sea"
    assert len(stage.data("decision")) == 3  # the children's estimate is one round, so nobody was asked
    last = model.requests[-1]["messages"][-1]["content"]
    assert "## go east\nsand" in last
    assert "## go west\nsea" in last
    child = next(record.baton for record in stage.records.values() if record.baton.depth)
    assert child.context["part_of"] == "Explore"


def test_a_judgement_that_cannot_be_had_is_no_reason_to_fail() -> None:
    with ScriptedModel(fails(400, "I do not judge"), says("42")) as model:
        stage = Stage(model)
        assert stage.run("What is it?").result == "42"
    assert "could not judge" in stage.data("decision")[0]["reason"]


def test_a_server_without_schemas_is_asked_in_words() -> None:
    with ScriptedModel(fails(400, "response_format is not supported"), fits(), says("42")) as model:
        stage = Stage(model)
        assert stage.run("What is it?").result == "42"
    assert "JSON schema" in model.requests[1]["messages"][-1]["content"]
    assert stage.data("dialect")[0]["schemas"] is False


def test_always_breaks_down_the_root_and_not_its_children_for_ever() -> None:
    with ScriptedModel() as model:
        model.on(lambda body: "response_format" in body, says('{"subtasks": [{"goal": "go east"}, {"goal": "go west"}]}'))
        model.on("go", says("ok")).always(says("ok"))
        model.on("Explore", says("done"))
        stage = Stage(model)
        assert stage.run("Explore", breakdown="always").result == "done"
    assert len(stage.records) == 3


def test_as_needed_tries_first_and_breaks_down_when_rounds_run_out() -> None:
    def script(body: dict[str, Any]) -> Any:
        return calls(("look", {"at": str(len(body["messages"]))}))

    with ScriptedModel() as model:
        model.on(lambda body: "response_format" in body, says('{"subtasks": [{"goal": "go east"}, {"goal": "go west"}]}'))
        model.on("go east", says("sand"))
        model.on("go west", says("sea"))
        model.on("Explore", script, script, says("sand and sea"))
        stage = Stage(model)
        root = stage.run("Explore", breakdown="as_needed", tools=[look], max_rounds=2)
    assert (root.result, root.partial) == ("sand and sea", False)
    assert stage.data("decision")[-1 - 2]["reason"].startswith("its rounds ran out")


def test_as_needed_breaks_down_when_it_fails() -> None:
    with ScriptedModel() as model:
        model.on(lambda body: "response_format" in body, says('{"subtasks": [{"goal": "go east"}, {"goal": "go west"}]}'))
        model.on("go", says("ok")).always(says("ok"))
        model.on("Explore", fails(400, "too hard"), says("done"))
        stage = Stage(model)
        assert stage.run("Explore", breakdown="as_needed").result == "done"


def test_a_refusal_is_not_broken_down_by_other_policies() -> None:
    with ScriptedModel(fits(), says(None, refusal="no")) as model:
        root = Stage(model).run("Explore")
    assert (root.status, root.error_kind) == (Status.FAILED, ErrorKind.REFUSED)


# ---------------------------------------------------------------- structured actions


def action(**fields: Any) -> Any:
    return says(json.dumps(fields))


def test_a_server_that_refuses_tools_is_driven_by_actions_from_then_on() -> None:
    def server(body: dict[str, Any]) -> Any:
        if "tools" in body:
            return fails(400, "this model does not support tools")
        told = " ".join(message["content"] for message in body["messages"])
        return action(action="final", answer="seen it") if "seen x" in told else action(action="tool", name="look", arguments={"at": "x"})

    with ScriptedModel() as model:
        model.always(server)
        stage = Stage(model)
        assert stage.run("Look", breakdown="never", tools=[look]).result == "seen it"
    assert [("tools" in body) for body in model.requests] == [True, False, False]
    [learnt] = stage.data("dialect")
    assert (learnt["dialect"], "does not support tools" in learnt["reason"]) == ("actions", True)
    assert {message["role"] for message in model.requests[-1]["messages"]} == {"system", "user", "assistant"}


def test_a_call_written_as_text_counts_and_actions_take_over() -> None:
    with ScriptedModel(says('```json\n{"name": "look", "arguments": {"at": "x"}}\n```'), action(action="final", answer="seen it")) as model:
        stage = Stage(model)
        assert stage.run("Look", breakdown="never", tools=[look]).result == "seen it"
    assert "tools" not in model.requests[1]
    assert stage.data("tool")[0]["name"] == "look"


def test_json_that_names_no_offered_tool_is_the_answer() -> None:
    with ScriptedModel(says('{"name": "Ada", "arguments": ["for", "against"]}')) as model:
        assert json.loads(Stage(model).run("Who?", breakdown="never", tools=[look]).result)["name"] == "Ada"


def test_actions_by_setting_spawn_and_resume() -> None:
    with ScriptedModel() as model:
        model.on("go east", action(action="final", answer="sand"))
        model.on("go west", action(action="final", answer="sea"))
        model.on(
            "Explore", action(action="spawn", subtasks=[{"goal": "go east"}, {"goal": "go west"}]), action(action="final", answer="both")
        )
        stage = Stage(model, dialect="actions")
        assert stage.run("Explore", breakdown="estimate", tools=[look]).result == "both"
    assert "Result of the subtask:\nsand" in model.requests[-1]["messages"][-1]["content"]
    assert model.requests[0]["response_format"]["json_schema"]["schema"]["oneOf"]


def test_what_the_tree_has_learnt_of_a_model_is_used_at_once() -> None:
    from tests.unit.agents import KEY

    with ScriptedModel(action(action="final", answer="ok")) as model:
        stage = Stage(model)
        stage.learned = {KEY: {"dialect": "actions", "seconds": 30.0}}
        stage.run("Look. And look again there.", breakdown="never", tools=[look])
    assert "tools" not in model.requests[0]
    assert stage.data("decision")[0]["seconds_per_round"] == 30.0


# ---------------------------------------------------------------- texts and the small model


def test_a_text_that_the_context_names_stands_in_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("The key is under the mat.")
    with ScriptedModel(says("under the mat")) as model:
        Stage(model).run("Where is the key?", breakdown="never", context={"file": str(tmp_path / "note.txt")})
    assert "under the mat" in model.requests[0]["messages"][1]["content"]
    assert "read_file" in names(model.requests[0])


def test_a_long_text_is_shown_in_part_and_says_how_to_read_on(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("chapter " * 10_000)
    with ScriptedModel(says("long")) as model:
        Stage(model).run("What is it?", breakdown="never", context={"file": str(tmp_path / "book.txt")})
    prompt = model.requests[0]["messages"][1]["content"]
    assert len(prompt) < 41_000
    assert "characters 0 to 40,000 of 80,000; read on with read_file" in prompt


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with ScriptedModel(says("no idea")) as model:
        Stage(model).run("What is it?", breakdown="never", context={"file": str(tmp_path / "gone.txt")})
    assert "gone.txt cannot be read: No such file or directory" in model.requests[0]["messages"][1]["content"]


def test_a_small_model_plans_by_an_example_and_sums_up() -> None:
    with ScriptedModel() as model:
        plan = {"subtasks": ["Prepare the soil", "Prepare the soil.", "Water the plants"]}
        model.on(lambda body: "response_format" in body, says(json.dumps(plan)))
        model.on("Notes:", says("Dig and pour."))
        model.on("Prepare the soil", says("Dig."))
        model.on("Water the plants", says("Pour."))
        stage = Stage(model, profile=SMALL, dialect="actions")
        assert stage.run("Grow tomatoes").result == "Dig and pour."
    assert len(stage.records) == 3
    assert "Dig." in model.requests[-1]["messages"][-1]["content"]
    assert all("tools" not in body for body in model.requests)


def test_a_small_model_reads_a_long_text_in_parts_and_is_not_asked_about_those_without_a_word_of_the_question(tmp_path: Path) -> None:
    paragraphs = [f"Chapter {n} says nothing.\n" + "padding here and there " * 12 for n in range(40)]
    paragraphs[30] = "The licence of the book is free for all to use."
    (tmp_path / "book.txt").write_text("\n\n".join(paragraphs))
    with ScriptedModel() as model:
        model.always(says("It is free."))
        stage = Stage(model, profile=SMALL, dialect="actions")
        assert stage.run("How is it licensed?", context={"file": str(tmp_path / "book.txt")}).result == "It is free."
    assert "3 parts" in stage.data("decision")[0]["reason"]
    goals = [record.baton.goal for record in stage.records.values()]
    assert goals[1:] == [f"How is it licensed? [part {n}/3]" for n in (1, 2, 3)]
    results = [record.baton.result for record in stage.records.values()]
    assert results.count("Nothing in this part of the text.") == 2
    assert len(model.requests) == 2
    assert "The licence of the book is free" in model.requests[0]["messages"][-1]["content"]


def test_the_plan_of_a_small_model_does_not_copy_its_example() -> None:
    plan = {"subtasks": ["Where coffee comes from", "Prepare the soil", "How coffee is made"]}
    with ScriptedModel(says(json.dumps(plan)), says("Dig.")) as model:
        stage = Stage(model, profile=SMALL, dialect="actions")
        assert stage.run("Grow tomatoes").result == "Dig."
    assert len(stage.records) == 1


def test_a_small_model_is_not_asked_about_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with ScriptedModel() as model:
        root = Stage(model, profile=SMALL, dialect="actions").run(
            "What is it?", context={"file": str(tmp_path / "nofile.md")}, breakdown="never"
        )
    assert root.error == "nofile.md cannot be read: No such file or directory; the small model does nothing without it"


@pytest.mark.parametrize("policy", ["judge", "auto", "always"])
def test_a_small_model_plans_at_the_root_only(policy: str) -> None:
    def plan(body: dict[str, Any]) -> Any:
        return says(json.dumps({"subtasks": [f"Part {len(body['messages'])} of it all", "Another part of it"]}))

    with ScriptedModel() as model:
        model.on(lambda body: "response_format" in body).always(plan)
        model.always(says("Done."))
        stage = Stage(model, profile=SMALL, dialect="actions")
        assert stage.run("Write one line. And then another line.", breakdown=policy).result == "Done."
    assert len(stage.records) == 3


def test_a_small_model_with_tools_makes_no_plan_and_its_echo_of_the_closing_is_no_answer() -> None:
    def echo(body: dict[str, Any]) -> Any:
        if "oneOf" in str(body.get("response_format")) and "'const': 'tool'" in str(body["response_format"]):
            return action(action="tool", name="look", arguments={"at": "the mat"})
        return action(action="final", answer="You have no calls left. Answer the task now")

    with ScriptedModel() as model:
        model.always(echo)
        root = Stage(model, profile=SMALL, dialect="actions").run("Look", tools=[look], max_rounds=2)
    assert (root.result, root.partial) == ("seen the mat", True)
