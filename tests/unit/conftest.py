"""What several unit tests need."""

from collections.abc import Iterator

import pytest
import stamina


@pytest.fixture
def without_pauses() -> Iterator[None]:
    """Model calls that fail are tried again at once."""
    with stamina.set_testing(True, attempts=5):
        yield
