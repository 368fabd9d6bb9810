"""One thread and a fixed seed for every test, and every call is held to the shapes in the signatures.

A signature says what goes in and what comes out, such as `x: Float[Tensor, "batch length d_model"]`. A test that hands
in what the library must refuse by itself, in its own words, is marked `bad_input`; it runs without that check. So do
the files of `WHOLE_RUNS`, where it would take a quarter of the time: test_devices.py trains and translates with it.
"""

import pytest
import torch
from hypothesis import Phase, settings
from jaxtyping import config, install_import_hook
from skips import pytest_sessionfinish  # noqa: F401
from typecheck import CORE

WHOLE_RUNS = {
    f"test_{name}" for name in ("checks", "checks_testing", "command_line", "engine", "fuzz", "interruption", "store",
                                "training", "trainings")
}  # fmt: skip
install_import_hook([f"transformer_lib.{module}" for module in CORE], "typecheck.typechecker")
settings.register_profile("course", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("no-shrinking", settings.get_profile("course"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("course")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _shapes_are_checked(request, monkeypatch):
    unchecked = request.node.get_closest_marker("bad_input") or request.module.__name__ in WHOLE_RUNS
    monkeypatch.setattr(config, "jaxtyping_disable", bool(unchecked))


@pytest.fixture(scope="module")
def browser():
    """A Chromium; a test that needs one is skipped where there is none."""
    from pdf import BROWSERS, chromium

    sync_api = pytest.importorskip("playwright.sync_api", reason="no browser: Playwright is not installed")
    if not chromium():
        pytest.skip("no browser: none of " + ", ".join(BROWSERS))
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        yield browser
        browser.close()
