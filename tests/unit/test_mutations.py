"""The mutations of the state machine still fit its source; `python -m tests.mutate_machine` runs them."""

from tests.mutate_machine import MACHINE, MUTATIONS, TESTS, stale


def test_every_mutation_matches_the_source_exactly_once() -> None:
    assert stale(MACHINE.read_text()) == []


def test_every_mutation_has_its_own_name_and_is_valid_python() -> None:
    source = MACHINE.read_text()
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS) > 25
    for each in MUTATIONS:
        compile(source.replace(each.old, each.new), each.name, "exec")


def test_every_test_file_of_the_machine_is_run_against_them() -> None:
    files = {path.stem for path in (MACHINE.parent.parent / "tests" / "unit").glob("test_machine*.py")}
    assert files == {f"test_machine_{each}".rstrip("_") for each in TESTS}
