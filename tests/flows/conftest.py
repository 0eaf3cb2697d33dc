"""A home of Prefect for each file, so that its database is made once."""

import os

import pytest


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def env(home):
    """Environment of a command that knows nothing of ours; the machine may be busy."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MARGINFLOW"))}
    ours |= {"HOME": str(home), "PREFECT_HOME": str(home / "prefect"), "PYTHONPATH": os.getcwd()}
    return ours | {"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180"}
