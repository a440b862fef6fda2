import lab
import pytest


@pytest.fixture(autouse=True)
def _close_clients():
    yield
    while lab.opened:
        lab.opened.pop().close()
