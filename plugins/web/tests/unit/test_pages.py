"""The overview as HTML: whatever a store holds is text, charts lose nothing bad, and many keys make a small page."""

from __future__ import annotations

import re
from datetime import date

import pytest
from hostile_texts import HOSTILE, Tags
from sample_pages import CLOCK, NOW, contents, summary

from oncecron.log.grid import Grid, Run
from oncecron_web import render
from oncecron_web.charts import axis, bars, calendar, lane
from oncecron_web.contents import Day


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_a_store_holds_is_shown_as_text(text: str) -> None:
    """The tags are those of a page with a harmless word, nothing acts, and nobody is flooded."""
    page = render.overview(contents(text), CLOCK)
    assert Tags(page).tags == Tags(render.overview(contents(), CLOCK)).tags
    assert len(page.encode("utf-8")) < 150_000
    shown = Tags(page).text
    assert not set(
        re.findall(r"[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u2028-\u202e\u2066-\u2069]", shown)
    )
    assert text[:20].encode("unicode_escape").decode() in shown or text.isprintable()


def test_links_lead_where_the_server_says() -> None:
    """A page that stands alone has none."""
    assert "href" not in re.sub(r"<(link|use)[^>]*>", "", render.overview(contents(), CLOCK))
    links = render.Links(lambda key: f"/keys/{key}?a&b", lambda _host: None)
    page = render.overview(contents(), CLOCK, links)
    assert page.count('<a class="name" href="/keys/plain?a&amp;b">plain</a>') == 4


def test_where_all_is_well_it_says_so() -> None:
    """And a store without keys is no fault."""
    well = contents()._replace(
        problems=[], jobs=[], running=[], hosts=[], hosts_of=[], days=[], keys=0, unreadable=0
    )
    page = Tags(render.overview(well._replace(timeline=Grid((), NOW, ())), CLOCK)).text
    assert "0 keys, all well; 0 hosts fire." in page
    assert "No host has fired a key yet." in page
    assert "What is wrong" not in page


def test_a_flooded_store_floods_nobody() -> None:
    """What is left out is counted, with the command that shows all."""
    flooded = contents()
    page = Tags(
        render.overview(
            flooded._replace(keys=20_000, hosts=[*flooded.hosts] * 1500, more_problems=1200), CLOCK
        )
    ).text
    assert "1 failed, 1 silent host, 1,200 more; 1,500 hosts fire." in page
    for more in ("1,200 more findings", "19,999 more keys", "1,000 more hosts"):
        assert f"And {more}: " in page


def test_bars_are_as_high_as_long_they_took() -> None:
    """By the square root; what went wrong is underlined, and what nobody started is hollow and of full height."""
    runs = [
        Run("t", "succeeded", NOW, 100.0, "h", 1),
        Run("t", "failed", NOW, 25.0, "h", 2),
        Run("t", "missed", NOW, None, "", 0),
    ]
    assert [tuple(each) for each in bars(runs)] == [
        ("well", "M164 22v-22"),
        ("missed", "M174.6 0.6h2.8v20.8h-2.8z"),
        ("bad", "M170 22v-11"),
        ("foot", "M168 25h4M174 25h4"),
    ]
    assert bars([]) == []
    assert bars([Run("t", "succeeded", NOW, 0.0, "h", 1)])[0].path == "M176 22v-3"


def test_neighbours_in_a_lane_are_one_mark_until_one_is_bad() -> None:
    """So that a page of 500 keys is small, and still hides nothing."""
    words = ["succeeded"] * 50 + ["failed", None] + ["succeeded"] * 50
    assert [tuple(each) for each in lane(words)] == [
        ("well", "M0 35h50v30h-50zM52 35h50v30h-50z"), ("bad", "M50 0h1v100h-1z"),
    ]  # fmt: skip


def test_the_calendar_counts_what_went_wrong() -> None:
    """Weeks begin on Monday; a day without ticks is none that went well."""
    days = [
        Day(date(2026, 11, 15), []),
        Day(date(2026, 11, 16), [("failed", 2), ("missed", 1), ("succeeded", 9)]),
        Day(date(2026, 11, 17), [("missed", 1200)]),
        Day(date(2026, 11, 18), [("running", 1), ("succeeded", 9)]),
    ]
    chart = calendar(days)
    assert [(each.look, each.text) for each in chart.cells] == [
        ("nothing", ""), ("bad", "3"), ("missed", "1k+"), ("well", ""),
    ]  # fmt: skip
    assert len({(each.x, each.y) for each in chart.cells}) == 4
    assert chart.cells[1].said == "Mon 16 Nov: 2 failed, 1 missed, 9 succeeded"
    assert chart.said == "Of 4 days, 2 had a tick that failed or was missed."


@pytest.mark.parametrize("hours", [1, 24, 24 * 30, 24 * 365])
def test_the_axis_has_a_few_labels(hours: int) -> None:
    """In the order of time, none twice."""
    starts = tuple(NOW - 3600 * hours * (1 - place / 60) for place in range(60))
    labels = list(axis(Grid(starts, NOW, ()), CLOCK))
    assert 1 <= len(labels) <= 8
    assert labels == sorted(labels)
    assert len({text for _, text in labels}) == len(labels)


def test_a_page_of_500_keys_is_small_and_soon_made() -> None:
    """A megabyte at most, though one key of fifty is in trouble."""
    wrong = contents("shop-customer-sync", 10)
    well = [
        wrong.jobs[0]._replace(
            summary=summary("shop-customer-sync", schedule="*/5 * * * *"), states=[("ok", 0)]
        )
    ] * 490
    page = render.overview(
        wrong._replace(
            jobs=[*wrong.jobs, *well], timeline=contents("shop-customer-sync", 500).timeline
        ),
        CLOCK,
    )
    assert len(page.encode("utf-8")) < 1_000_000
