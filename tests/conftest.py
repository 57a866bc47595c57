"""Options of the whole suite; pytest reads them here only, whatever part of it is run."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-seconds", type=float, default=60.0, help="how long tests/chaos injures each cluster")
    parser.addoption("--chaos-seed", type=int, default=None, help="repeat the injuries of that seed; at random without it")
