"""The overview as HTML: whatever a store holds is text, charts lose nothing bad, and many keys make a small page."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from hostile_texts import HOSTILE, Tags
from sample_pages import CLOCK, NOW, days, line, shown, summary

from oncecron.core.log_rows import Told
from oncecron.log.grid import Grid, Line, Mark, Run
from oncecron.watch.findings import finding
from oncecron_web.cards import cards
from oncecron_web.charts import axis, bars, calendar, lane, rate, spots
from oncecron_web.live_pages import draw_overview, filtered
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
    assert live.count('<a class="name" href="key?name=a%26b">a&amp;b</a>') == 5
    assert live.count('<a class="host" href="host?name=a%26b">a&amp;b</a>') == 5


def test_where_all_is_well_it_says_so() -> None:
    """And a store without keys is no fault."""
    empty = dict.fromkeys(("problems", "jobs", "running", "hosts", "hosts_of"), ())
    found = drawn(
        **shown()
        | empty
        | {
            "keys": 0,
            "coming": [],
            "told": [],
            "timeline": Grid((), NOW, ()),
            "days": Grid((), NOW, ()),
        }
    )
    told = Tags(found).text
    assert "0 keys, all well; 0 hosts fire." in told
    assert "No host has fired a key yet." in told
    assert "What is wrong" not in told


def test_a_flooded_store_floods_nobody() -> None:
    """What is left out is counted, with the command that shows all."""
    flood = {"keys": 20_000, "hosts": shown()["hosts"] * 1500, "more_problems": 1200}
    told = Tags(drawn(**shown() | flood)).text
    assert "1 failed, 1 silent host, 1,200 more; 0 of 1,500 hosts fire." in told
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
        (),
        (("failed", 1), ("succeeded", 1439)),
        until=datetime.fromisoformat("2026-11-19T00:00Z").timestamp(),
    )
    chart = calendar(of_days, CLOCK)
    assert [(each.look, each.text) for each in chart.cells] == [
        ("many", "3"), ("missed", "1k+"), ("well", ""), ("nothing", ""), ("few", "1"),
    ]  # fmt: skip
    assert len({(each.x, each.y) for each in chart.cells}) == 5
    assert chart.cells[0].said == "Sat 14 Nov: 2 failed, 1 missed, 9 succeeded, 75 % well"
    assert chart.said == "Of 5 days on record, 3 had a tick that failed or was missed."


def test_a_calendar_is_that_of_all_its_keys() -> None:
    """So a filter of keys is one of the calendar; without a key it says that nothing is there."""
    one, two = ([(("failed", 1),)], [(("succeeded", 199), ("failed", 0))])
    lines = (days(*one).lines[0], days(*two).lines[0]._replace(name="other"))
    grid = days(*one)._replace(lines=lines)
    assert [each.look for each in calendar(grid, CLOCK).cells] == ["few"]
    assert calendar(grid, CLOCK).counts == [("failed", 1), ("succeeded", 199)]
    found = shown() | {"days": grid._replace(lines=(lines[0]._replace(name="plain"), lines[1]))}
    [cell] = calendar(filtered(found, {"q": "plain"})["days"], CLOCK).cells
    assert (cell.look, cell.text) == ("bad", "1")
    assert len(calendar(days((), ()), CLOCK).cells) == 1


@pytest.mark.parametrize("query", [{"q": "x y z"}, {"outcome": "ok"}, {"host": "nowhere"}])
def test_a_filter_hides_nothing_that_is_wrong(query: dict[str, str]) -> None:
    """The sentence and the title are about all keys; a line says what the filter shows, and clears it."""
    of_all = shown() | {"keys": 14}
    found = draw_overview(of_all, query, CLOCK)
    told = Tags(found).text
    assert "14 keys, 1 failed, 1 silent host; 0 of 1 host fires." in told
    assert "<title>1 failed, 1 silent host · oncecron</title>" in found
    [value] = query.values()
    assert f"{value}) shows 0 of 1 key and hides 2 findings. Clear the filter" in told
    assert '<a href="./">Clear the filter</a>' in found
    assert "No key matches the filter." in told
    for part in ("<article", 'id="running"', 'id="timeline"', 'id="days"', "all well"):
        assert part not in found
    assert "The filter" not in Tags(draw_overview(of_all, {"since": "24h"}, CLOCK)).text


def test_equal_findings_are_one_card() -> None:
    """With their keys, the oldest first; before them what is about more keys, behind them what is less bad."""
    since = (NOW - 600, NOW - 3600, NOW - 60, NOW - 1800)
    missed = [
        finding("missed", f"key{place}", 3, f"missed 3 ticks {place}", since=at)
        for place, at in enumerate(since)
    ]
    failed = finding("failed", "bad", 1, "failed (exit status 3)", since=NOW - 9000)
    slow = [finding("slow", f"slow{place}", 1, "is slow", since=NOW) for place in range(9)]
    dead = finding("silent-host", None, 9, "web1 has fired nothing", since=NOW, host="web1")
    found = cards([failed, *missed, *slow, dead])
    assert [(each.first.finding, len(each.findings)) for each in found] == [
        ("missed", 4), ("failed", 1), ("slow", 9), ("silent-host", 1),
    ]  # fmt: skip
    assert [each.key for each in found[0].findings] == ["key1", "key3", "key0", "key2"]
    still = finding("standstill", None, 1, "no host has fired", since=NOW)
    assert cards([failed, still])[0].first == still
    said = Tags(drawn(**shown() | {"problems": [failed, still]})).text
    assert "1 key, no host fires, 1 failed; " in said
    told = drawn(**shown() | {"problems": [failed, *missed, *slow, dead], "explained": {}})
    assert "1 key, 4 missed, 1 failed, 9 slow, 1 silent host; " in Tags(told).text
    assert told.count("<article") == 4
    assert "1 more key" in Tags(told).text
    assert Tags(told).text.count("is slow") == 1


def test_what_stands_still_as_a_whole_has_its_words() -> None:
    """At the top, in its card, and in the row of each host; a forgotten pause is about its key alone."""
    still = finding("standstill", None, 1, "no host has fired", since=NOW)
    told = drawn(**shown() | {"problems": [still], "explained": {}})
    assert "1 key, no host fires; 0 of 1 host fire" in Tags(told).text
    assert "</svg>no host fires</span>" in told.partition("<article")[2]
    assert re.search(
        r'<tr class="missed">(?:(?!</tr>).)*</svg>silent</span>', told.partition('id="hosts"')[2]
    )
    whole = finding("stopped", None, 3, "all 3 hosts are drained by ann: a move", since=NOW)
    told = drawn(**shown() | {"problems": [whole], "explained": {}})
    assert "1 key, all 3 hosts are drained; " in Tags(told).text
    assert "</svg>all 3 hosts are drained</span>" in told.partition("<article")[2]
    pauses = [finding("stopped", key, 1, "is paused by ann", since=NOW) for key in "ab"]
    drain = finding("stopped", None, 1, "web1 is drained by ann", since=NOW, host="web1")
    told = drawn(**shown() | {"problems": [*pauses, drain], "explained": {}})
    assert "1 key, 3 held back; " in Tags(told).text
    slow = [finding("slow", each, 1, "is slow", since=NOW - 9) for each in "abc"]
    assert [each.first.finding for each in cards([*pauses, *slow])] == ["slow", "stopped"]


def test_a_command_on_a_page_is_of_its_namespace() -> None:
    """In a finding, its cure and its account, and where the page says what has all."""
    found = finding("failed", "k", 1, "failed: see `oncecron why k`")
    values = {
        "problems": [found],
        "explained": {found: (["`oncecron run --key k -- true`"], None)},
        "more_problems": 1,
    }
    other, usual = (
        drawn(**{**shown("k"), **values, "namespace": each}) for each in ("prod", "oncecron")
    )
    commands = re.findall("<code>oncecron (.*?)</code>", other)
    assert {"why k --namespace prod", "run --key k --namespace prod -- true"} <= {*commands}
    assert "check --json --namespace prod" in commands
    assert [each for each in commands if "--namespace prod" not in each] == ["notify"]
    assert "--namespace" not in usual


def test_a_command_with_backquotes_stands_in_one_piece() -> None:
    """It can be copied: what the shell quotes does not end it."""
    found = shown()
    [failed] = list(found["explained"])
    line = (
        "To run it again: `oncecron run --key k -- sh -c 'dump >`date +%F`.sql'`, or wait for `k`"
    )
    told = drawn(**found | {"explained": {failed: ([line], None)}, "namespace": "oncecron"})
    told = told.replace("&#39;", "'").replace("&gt;", ">")
    assert (
        "<code>oncecron run --key k -- sh -c 'dump >`date +%F`.sql'</code>, or wait for <code>k</code>"
        in told
    )


def test_who_was_told_is_said() -> None:
    """Of which channel, when and what; with the shape of what was told, and a filter leaves out other keys."""
    told = [
        ("ops", Told(NOW - 60, "recovered", "ok", "failed", "plain", "plain is well again")),
        (
            "boss",
            Told(NOW - 3600, "problem", "critical", "missed", "plain", "plain missed 2 ticks"),
        ),
        (
            "ops",
            Told(
                NOW - 7200,
                "reminder",
                "warning",
                "slow",
                "other",
                "other is slow: `oncecron locks`",
            ),
        ),
    ]
    found = drawn(**shown() | {"told": told, "namespace": "oncecron"})
    part = found.partition('id="told"')[2].partition("</section>")[0]
    rows = [
        " ".join(Tags(row.replace("<td", " <td")).text.split()) for row in part.split("<tr>")[2:]
    ]
    assert rows == [
        "11:05 ops plain is well again",
        "10:06 boss plain missed 2 ticks",
        "09:06 ops other is slow: oncecron locks reminder",
    ]
    assert [how in part for how in ("icon well", "icon missed", "icon warning")] == [True] * 3
    assert [each.key for _, each in filtered(shown() | {"told": told}, {"q": "pla"})["told"]] == [
        "plain"
    ] * 2


def test_a_page_of_some_keys_says_so() -> None:
    """So that nobody takes it for the page of all."""
    told = Tags(drawn(**shown() | {"only": ["plain"]})).text
    assert (
        "This page is about plain alone: oncecron report --namespace plain without a key has all."
        in told
    )


def test_each_mark_says_what_it_is() -> None:
    """Its times, its counts and its outcome, from half-way to its neighbours; what few ticks did wrong is faint."""
    starts = tuple(NOW - 600 + 60 * place for place in range(10))
    well, few = (("succeeded", 1),), (("failed", 1), ("succeeded", 199))
    one = Mark("succeeded", 1, well, NOW - 531, "t", "web1")
    faint = Mark("failed", 200, few, NOW - 200, "t", "web1")
    marks = [None, one, one, None, None, None, faint, None, None, None]
    of_key = Line("k", tuple(marks), (("failed", 1), ("succeeded", 201)))
    grid = Grid(starts, NOW, (of_key,))
    assert [tuple(each) for each in spots(of_key, grid, CLOCK)] == [
        (5, "10:57 to 10:59: 2 succeeded"), (5, "11:02 to 11:03: 1 failed, 199 succeeded"),
    ]  # fmt: skip
    assert [each.look for each in lane(of_key.marks)] == ["well", "few"]
    alone = of_key._replace(marks=(*[None] * 9, one))
    assert [tuple(each) for each in spots(alone, grid, CLOCK)] == [(10, "10:57: succeeded on web1")]
    assert rate(of_key.counts) == "99.5 %"
    assert (rate((("failed", 1), ("succeeded", 99_999))), rate(())) == ("99.99 %", "")


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
