"""One studio on models of every text family, and a browser that looks at it."""

import shutil

import pytest
from tests.system.studio import toy
from tests.system.studio.toy import Tab

import regard


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    toy.wanted()
    return toy.train(tmp_path_factory.mktemp("studio"))


@pytest.fixture(scope="session")
def home(place):
    with toy.studio(place) as address:
        yield address


@pytest.fixture(scope="module")
def browser(home):
    """Not for the session: Playwright's event loop runs until it ends, and tests elsewhere run loops of their own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def tab(browser, home):
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, reduced_motion="reduce", accept_downloads=True
    )
    tab = Tab(context.new_page(), home)
    yield tab
    context.close()
    tab.check()


@pytest.fixture
def model(place):
    return lambda run: regard.load(place / "runs" / run)
