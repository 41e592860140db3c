"""The page in a headless Chromium: signing in, the views, the keyboard, and text of strangers.

With DEFERRED_QUOTA_SCREENSHOTS=DIRECTORY it leaves pictures there, light and dark.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.builders import a_quota
from tests.controllers.queue.queue_steps import condition, gated
from tests.page.browser import Browser, a_browser, missing_programs
from tests.page.page_harness import ALL, PageHarness, new_page
from webhook.admission.serving.plain_http import ConnectionLimits, PlainHttpServer

pytestmark = pytest.mark.skipif(
    bool(missing_programs()), reason=f"not installed: {missing_programs()}"
)

MARKUP = "<img src=x onerror=window.stolen=1>"
SCRIPT = f"<script>window.stolen=1</script>{MARKUP}"
LIMITS = ConnectionLimits(connections=32, silence_seconds=10.0)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with a_browser(tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture(scope="module")
def page() -> Iterator[PageHarness]:
    """A quota of 4 cpu, pods that take of it, and a queue with a name that is markup."""
    hard = {"requests.cpu": "4", "limits.memory": "8Gi"}
    limits = {"memory": "1Gi"}
    with new_page(
        a_quota("compute", hard=hard), a_namespace("team-b"), a_quota("p2", namespace="team-b")
    ) as made:
        harness = made.controller
        harness.removes_gates_at_once = False
        for name, cpu in (("api-0", "1"), ("api-1", "500m")):
            harness.pod(name, cpu, limits=limits)
            harness.bind(name)
        harness.step()
        made.sample()
        made.clock[0] += 900
        for name, cpu in (("batch-0", "1500m"), ("batch-1", "2"), (MARKUP, "250m")):
            gated(harness, name, cpu, limits=limits)
        harness.step()
        made.sample()
        made.clock[0] += 300
        condition(harness, "batch-1", message=SCRIPT)
        harness.step()
        yield made


@pytest.fixture(scope="module")
def address(page: PageHarness) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server = PlainHttpServer("page", listener, page.app, LIMITS)
    server.start()
    yield url
    server.stop()


def sign_in(browser: Browser, address: str, token: str) -> None:
    browser.open("about:blank")
    browser.open(address)
    browser.run("sessionStorage.clear()")
    browser.open(address + "?again")
    browser.shows("Sign in")
    browser.type(token)
    browser.enter()


def picture(browser: Browser, name: str) -> None:
    folder = os.environ.get("DEFERRED_QUOTA_SCREENSHOTS")
    if folder:
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.screenshot(Path(folder) / f"page-{name}-{scheme}.png")
        browser.prefer("light")


def test_the_views_are_reached_by_the_keyboard_alone(
    browser: Browser, page: PageHarness, address: str
) -> None:
    sign_in(browser, address, page.users.add("ann", "team-a"))
    browser.shows("Namespaces that defer their quotas")
    assert browser.focused() == "Namespaces"
    assert "team-b" not in browser.text()
    picture(browser, "namespaces")
    browser.tab()
    assert browser.focused() == "team-a"
    browser.enter()
    browser.shows("ResourceQuota compute")
    assert browser.focused() == "Namespace team-a"
    text = browser.text()
    for expected in ("Pods that wait for quota", "QuotaExceeded", "Pods that take most", "api-0"):
        assert expected in text
    picture(browser, "namespace")
    while browser.focused() != "batch-1":
        browser.tab()
    browser.enter()
    browser.shows("What would unblock it")
    assert browser.focused() == "Pod batch-1"
    picture(browser, "pod")
    assert browser.complaints() == []


def test_text_of_strangers_is_shown_as_it_is_written(
    browser: Browser, page: PageHarness, address: str
) -> None:
    sign_in(browser, address, page.users.add("bob", "team-a"))
    browser.shows("team-a")
    browser.open(address + "#/namespaces/team-a")
    browser.shows(MARKUP)
    click = (
        "[...document.querySelectorAll('main a')].find(one => one.text === arguments[0]).click()"
    )
    browser.run(click, MARKUP)
    browser.shows(f"Pod team-a/{MARKUP} does not exist")  # no API server has such a name
    assert browser.run("return window.stolen") is None
    assert browser.run("return document.querySelectorAll('main script, main img').length") == 0


def test_the_policy_stops_what_would_be_injected(
    browser: Browser, page: PageHarness, address: str
) -> None:
    sign_in(browser, address, page.users.add("bob", "team-a"))
    browser.shows("team-a")
    browser.complaints()
    script = """
      const one = document.createElement('script');
      try { one.textContent = 'window.stolen = 1'; document.body.append(one); } catch {}
      try { document.body.innerHTML = '<img src=x onerror="window.stolen=1">'; } catch {}
      return document.querySelectorAll('img').length
    """
    assert browser.run(script) == 0
    assert browser.run("return window.stolen") is None
    assert browser.complaints()


def test_a_screen_reader_gets_names_for_bars_and_charts(
    browser: Browser, page: PageHarness, address: str
) -> None:
    sign_in(browser, address, page.users.add("ann", "team-a"))
    browser.shows("team-a")
    browser.open(address + "#/namespaces/team-a")
    browser.shows("Last hour")
    names = browser.names()
    roles = {role for role, _ in names}
    assert {"heading", "link", "button", "columnheader", "image"} <= roles
    bars = [name for role, name in names if role == "image"]
    assert any(name.startswith("requests.cpu: used 1500m") for name in bars)
    assert any(name.startswith("compute requests.cpu: now ") for name in bars)


def test_a_user_without_rights_sees_no_namespace(
    browser: Browser, page: PageHarness, address: str
) -> None:
    sign_in(browser, address, page.users.add("dan"))
    browser.shows("No namespace that defers its quotas is shown to you")
    browser.open(address + "#/namespaces/team-a")
    browser.shows("there is no such namespace, or it is not shown to this user")
    assert "compute" not in browser.text()


def test_a_token_is_kept_by_the_tab_alone_until_the_user_signs_out(
    browser: Browser, page: PageHarness, address: str
) -> None:
    token = page.users.add("cleo", ALL)
    sign_in(browser, address, token)
    browser.shows("team-b")
    assert browser.run("return localStorage.length") == 0
    assert browser.run("return document.cookie") == ""
    assert token in browser.run("return Object.values(sessionStorage)")
    browser.run("document.getElementById('sign-out').click()")
    browser.shows("Signed out")
    assert browser.run("return sessionStorage.length") == 0
    assert "team-b" not in browser.text()


def test_an_unknown_token_is_not_kept(browser: Browser, page: PageHarness, address: str) -> None:
    page.clock[0] += 60
    sign_in(browser, address, "unknown")
    browser.shows("The token is not known")
    assert browser.run("return sessionStorage.length") == 0


def test_dark_and_light_schemes_have_their_own_colours(browser: Browser, address: str) -> None:
    browser.open(address)
    colours = set()
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        colours.add(browser.run("return getComputedStyle(document.body).backgroundColor"))
    browser.prefer("light")
    assert len(colours) == 2
