"""One browser per module of tests."""

import pytest
from oracles.browser import start_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = start_browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.quit()
