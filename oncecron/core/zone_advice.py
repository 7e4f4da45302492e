"""What to write instead of a time zone that the tz database does not have.

A suggestion is a place: never another abbreviation, whose offset may be hours away. It does not depend on which of the
old names this host's tz database still has (Debian's tzdata leaves them to tzdata-legacy).
"""

from __future__ import annotations

import re
from zoneinfo import available_timezones

from oncecron.core.suggestion import similar

_PLACES = {
    "Africa/Johannesburg": "SAST",
    "America/Anchorage": "AKST AKDT",
    "America/Chicago": "CDT CST6CDT",
    "America/Denver": "MDT MST7MDT",
    "America/Halifax": "ADT",
    "America/Los_Angeles": "PST PDT PT PST8PDT",
    "America/New_York": "EDT ET EST5EDT",
    "America/Sao_Paulo": "BRT",
    "Asia/Hong_Kong": "HKT",
    "Asia/Seoul": "KST",
    "Asia/Singapore": "SGT",
    "Asia/Tokyo": "JST",
    "Australia/Perth": "AWST",
    "Australia/Sydney": "AEST AEDT",
    "Europe/Athens": "EET EEST",
    "Europe/Berlin": "CET CEST MET MEST MEZ MESZ",
    "Europe/Lisbon": "WET WEST",
    "Europe/Moscow": "MSK",
    "Pacific/Auckland": "NZST NZDT",
    "Pacific/Honolulu": "HST",
}
_PLACE_OF = {short: place for place, shorts in _PLACES.items() for short in shorts.split()}
_SEVERAL = {
    "AST": ("America/Halifax", "Asia/Riyadh"),
    "BST": ("Europe/London", "Asia/Dhaka"),
    "CST": ("America/Chicago", "Asia/Shanghai"),
    "EST": ("America/New_York", "America/Panama"),
    "IST": ("Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"),
    "MST": ("America/Denver", "America/Phoenix"),
}
"""Abbreviations that people use for several clocks."""
_ABBREVIATION = re.compile(r"[A-Z]{2,5}|[A-Z]{3}\d[A-Z]{3}")
_OFFSET = re.compile(r"(?:UTC|GMT|Z)?\s*([+-])(\d{1,2})(?::?(\d\d))?", re.IGNORECASE)
_FURTHEST = {"+": 14, "-": 12}
"""Hours ahead of UTC and behind it for which the tz database has a zone."""


def cure_of(name: str) -> str:
    """Return what to do about a name that the tz database does not have."""
    if offset := _OFFSET.fullmatch(name.strip()):
        return _cure_of_offset(*offset.groups())
    if cure := _cure_of_abbreviation(name.upper()):
        return cure
    known = available_timezones() - {"localtime", "Factory"}
    if not known:
        return "this host has no tz database: install tzdata"
    if found := _similar(name, known):
        return f"did you mean {found}?"
    if _ABBREVIATION.fullmatch(name):
        return "if it is an abbreviation, name the zone itself, such as Europe/Berlin"
    return "use a name of the tz database, such as Europe/Berlin"


def _cure_of_abbreviation(short: str) -> str | None:
    if short in ("UTC", "GMT", "Z"):
        return f"did you mean {'UTC' if short == 'Z' else short}?"
    if places := _SEVERAL.get(short):
        return f"it is an abbreviation of several zones; name the one that you mean: {' or '.join(places)}"
    if place := _PLACE_OF.get(short):
        return f"it is an abbreviation, which knows no summer time; name the zone, such as {place}"
    return None


def _cure_of_offset(sign: str, hours: str, minutes: str | None) -> str:
    why = "an offset knows no summer time; name the zone, such as Europe/Berlin"
    count = int(hours)
    if int(minutes or 0) or count > _FURTHEST[sign]:
        return why
    if not count:
        return "did you mean UTC?"
    fixed = f"Etc/GMT{'-' if sign == '+' else '+'}{count}"  # the tz database has the sign of POSIX
    return f"{why}; always {count} h {'ahead of' if sign == '+' else 'behind'} UTC is {fixed}"


def _similar(name: str, known: set[str]) -> str | None:
    places = sorted(zone for zone in known if zone[-1:].islower() and not zone.startswith("Etc/"))
    cities: dict[str, list[str]] = {}
    for zone in places:
        cities.setdefault(_letters(zone.rpartition("/")[2]), []).append(zone)
    region, _, last = name.rpartition("/")
    city = _letters(last)
    if city not in cities:
        # Not the whole names: of America/Boston and America/Boise, two hours apart, most letters are alike.
        alike = [each for each in cities if each[:1] == city[:1]]
        city = next(iter(similar(city, alike, 80)), "")
    found = cities.get(city, [])
    same_region = (zone for zone in found if _letters(zone.rpartition("/")[0]) == _letters(region))
    return next(same_region, found[0] if found else None)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))
