"""The overview as HTML: whatever a store holds is text, charts lose nothing bad, and many keys make a small page."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from hostile_texts import HOSTILE, Tags
from sample_pages import CLOCK, NOW, days, line, shown, summary

from oncecron.log.grid import Grid, Run
from oncecron_web.charts import axis, bars, calendar, lane
from oncecron_web.live_pages import filtered
from oncecron_web.render import page


def drawn(**values: Any) -> str:
    """Return the overview."""
    return page("overview.html", CLOCK, **values)


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_a_store_holds_is_shown_as_text(text: str) -> None:
    """The tags are those of a page with a harmless word, nothing acts, and nobody is flooded."""
    found = drawn(**shown(text))
    assert Tags(found).tags == Tags(drawn(**shown())).tags
    assert len(found.encode("utf-8")) < 150_000
    told = Tags(found).text
    assert not set(
        re.findall(r"[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u2028-\u202e\u2066-\u2069]", told)
    )
    assert text[:20].encode("unicode_escape").decode() in told or text.isprintable()


def test_each_host_of_a_running_key_has_its_link_and_finds_it() -> None:
    """Two, where shards of the key run; also one on which the key has not run before."""
    found = shown()
    [job] = found["jobs"]
    found["jobs"] = [job._replace(running_on=("web1", "web2"))]
    live = drawn(**found, is_live=True)
    for host in ("web1", "web2"):
        assert f'href="host?name={host}">{host}</a>' in live
        assert [each.key for each in filtered(found, {"host": host})["jobs"]] == ["plain"]
    assert filtered(found, {"host": "web"})["jobs"] == []


def test_links_lead_to_other_pages() -> None:
    """Those of a server; a page that stands alone has none."""
    assert "href" not in re.sub(r"<(link|use)[^>]*>", "", drawn(**shown()))
    live = drawn(**shown("a&b"), is_live=True)
    assert live.count('<a class="name" href="key?name=a%26b">a&amp;b</a>') == 4
    assert live.count('<a class="host" href="host?name=a%26b">a&amp;b</a>') == 5


def test_where_all_is_well_it_says_so() -> None:
    """And a store without keys is no fault."""
    empty = dict.fromkeys(("problems", "jobs", "running", "hosts", "hosts_of"), ())
    found = drawn(**shown() | empty | {"keys": 0, "timeline": Grid((), NOW, ())})
    told = Tags(found).text
    assert "0 keys, all well; 0 hosts fire." in told
    assert "No host has fired a key yet." in told
    assert "What is wrong" not in told


def test_a_flooded_store_floods_nobody() -> None:
    """What is left out is counted, with the command that shows all."""
    flood = {"keys": 20_000, "hosts": shown()["hosts"] * 1500, "more_problems": 1200}
    told = Tags(drawn(**shown() | flood)).text
    assert "1 failed, 1 silent host, 1,200 more; 1,500 hosts fire." in told
    for more in ("1,200 more findings", "19,999 more keys", "1,000 more hosts"):
        assert f"And {more}: " in told


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
    assert [tuple(each) for each in lane(line("k", *words).marks)] == [
        ("well", "M0 35h50v30h-50zM52 35h50v30h-50z"), ("bad", "M50 0h1v100h-1z"),
    ]  # fmt: skip


def test_the_calendar_counts_what_went_wrong() -> None:
    """Weeks begin on Monday; a day without ticks is none that went well."""
    of_days = days(
        (),
        (("failed", 2), ("missed", 1), ("succeeded", 9)),
        (("missed", 1200),),
        (("running", 1), ("succeeded", 9)),
        until=datetime.fromisoformat("2026-11-19T00:00Z").timestamp(),
    )
    chart = calendar(of_days, CLOCK)
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
    many = shown("shop-customer-sync", 500)
    well = summary("well", schedule="*/5 * * * *")
    many["jobs"] = many["jobs"][:10] + [well] * 490
    many["bars"]["well"] = many["bars"]["shop-customer-sync"]
    many["states"]["well"] = [("ok", 0)]
    assert len(drawn(**many).encode("utf-8")) < 1_000_000
