"""The saved timeline in a real browser: it opens, a click shows a step, nothing runs or loads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import backends
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from playwright.sync_api import Browser, sync_playwright
from test_timeline import HOSTILE, PICTURE, at, made_of, simple
from test_timeline_trouble import nested

from langgraph_durable import Artifact, Timeline

FLAGS = "--no-sandbox --headless --disable-gpu --disable-background-networking --no-first-run"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if found is None:
        pytest.fail("no chromium: tests/install_servers.sh installs chromium-headless-shell")
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=found, args=FLAGS.split(), timeout=200_000)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = simple(InMemorySaver())
    said: Any = [HumanMessage(text) for text in HOSTILE]
    graph.invoke({"messages": said, "plan": "first\nsecond"}, at("trip"))
    tl = Timeline(graph, "trip")
    tl[2].fork({"plan": "B\nsecond"}, as_node="planner").replay()
    return tl.to_html(tmp_path_factory.mktemp("saved") / "run.html")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_tags_artifacts_and_the_environment_are_seen(
    browser: Browser, tmp_path: Path, theme: Any
) -> None:
    with backends.hasty_sqlite(tmp_path, environment={"release": "2.0"}) as saver:
        picture = Artifact.from_bytes(PICTURE, media_type="image/png", name="chart.png")
        table = Artifact.from_text("a,b\n1,2\n", media_type="text/csv", name="t.csv")
        tl = made_of(saver, picture=picture, table=table)
        saver.tag(tl[-1].config, "milestone")
        tl.refresh()
        file = tl.to_html(tmp_path / "run.html")
    page = browser.new_page(color_scheme=theme)
    page.goto(file.as_uri())
    step = page.locator("details.step").last
    assert step.locator("> summary .badge.tag").inner_text() == "#milestone"
    picture_shown = step.locator("img").last
    assert not picture_shown.is_visible()
    step.locator("> summary").click()
    assert picture_shown.is_visible()
    assert picture_shown.evaluate("async it => { await it.decode(); return it.naturalWidth }") == 1
    assert step.locator("table table td", has_text="2").last.is_visible()
    assert step.locator(".fact", has_text="release").last.is_visible()
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("body", "is_dark"),
    [
        ('data-jp-theme-light="true"', False),
        ('data-jp-theme-light="false"', True),
        ('class="vscode-light" data-vscode-theme-kind="vscode-light"', False),
        ('class="vscode-dark" data-vscode-theme-kind="vscode-dark"', True),
    ],
)
def test_a_notebook_s_own_theme_is_followed(
    browser: Browser, body: str, is_dark: bool, theme: Any
) -> None:
    graph = simple(InMemorySaver())
    graph.invoke({}, at("t"))
    page = browser.new_page(color_scheme=theme)
    page.set_content(f"<html><body {body}>{Timeline(graph, 't')._repr_html_()}</body></html>")
    colour = page.evaluate("getComputedStyle(document.querySelector('.lgd')).backgroundColor")
    assert colour == ("rgb(22, 25, 29)" if is_dark else "rgb(255, 255, 255)")
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_click_opens_a_step_and_shows_what_changed(
    browser: Browser, saved: Path, theme: Any
) -> None:
    page = browser.new_page(color_scheme=theme)
    requests: list[str] = []
    alerts: list[Any] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (alerts.append(dialog), dialog.dismiss()))
    page.goto(saved.as_uri())
    steps = page.locator("details.step")
    assert steps.count() == 6
    changed = steps.nth(3).locator("tr.added .new").last
    assert not changed.is_visible()
    steps.nth(3).locator("> summary").click()
    assert changed.is_visible()
    assert "work on A" in steps.nth(3).inner_text()
    assert "<script>x</script>" in steps.nth(3).inner_text()
    dark = page.evaluate("getComputedStyle(document.querySelector('.lgd')).backgroundColor")
    assert dark == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 29)"}[theme]
    assert page.locator("svg.lgd-plot rect").count() > 3
    assert page.locator("script, img").count() == 0
    assert requests == [saved.as_uri()]
    assert alerts == []
    page.close()


CROSSED = """[...document.querySelectorAll('.body')].filter(body => {
    body.scrollIntoView({block: 'center'})
    const at = body.getBoundingClientRect()
    return [...Array(Math.floor(at.width)).keys()].some(
        x => document.elementFromPoint(at.left + x, at.top + at.height / 2)?.closest('.rail'))
}).length"""
"""How many open steps have a line of the tree across them."""


@pytest.mark.parametrize("width", [360, 1200])
def test_a_page_is_as_wide_as_the_window(browser: Browser, saved: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 700})
    page.goto(saved.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    heads = page.locator(".head .node")
    assert all(heads.nth(at).is_visible() for at in range(heads.count()))
    page.add_style_tag(content=".lgd .rail {pointer-events: auto !important}")
    assert page.evaluate(CROSSED) == 0
    page.close()


def test_a_click_expands_a_sub_graph_in_place(browser: Browser, tmp_path: Path) -> None:
    graph = nested(InMemorySaver())
    graph.invoke({}, at("t"))
    page = browser.new_page()
    page.goto(Timeline(graph, "t").to_html(tmp_path / "run.html").as_uri())
    run = page.locator("details.run").first
    inner = run.locator(".node", has_text="split").first
    assert not inner.is_visible()
    run.locator("> summary").click()
    assert inner.is_visible()
    run.locator("details.run > summary").first.click()
    assert run.locator(".node", has_text="deep").first.is_visible()
    page.close()


def test_the_lines_of_the_tree_meet_the_dots(browser: Browser, saved: Path) -> None:
    page = browser.new_page()
    page.goto(saved.as_uri())
    middles = "it => { const b = it.getBoundingClientRect(); return b.left + b.width / 2 }"
    ends = "it => it.getBoundingClientRect().right"
    bend = page.locator(".bend").first
    fork = page.locator(".row", has=page.locator(".bend")).first.locator(".dot").first
    assert abs(bend.evaluate(ends) - fork.evaluate(middles)) <= 2
    main = page.locator(".row").first
    rail, dot = main.locator(".rail").first, main.locator(".dot").first
    assert abs(rail.evaluate(middles) - dot.evaluate(middles)) <= 1
    page.close()
