"""A certificate as one page for a browser, which needs nothing else and has no script.

A sentence may name whatever a store answered or a job wrote. So each text is made visible (`core.stderr`), cut, and
escaped by jinja2. The template trusts no text.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from oncecron.core.masking import without_logins
from oncecron.core.stderr import visible
from oncecron.core.units import format_duration

if TYPE_CHECKING:
    from oncecron_drill.certificate import Certificate

_LONGEST_TEXT = 2000
"""Characters of a text that are shown."""
_MOST_LINES = 200
"""Lines of a history that are shown; `--json` has all."""
LOOKS = {"clean": ("well", "✓"), "violated": ("bad", "✗"), "not judged": ("warning", "?")}
"""By verdict: the look of the page, and a mark for those who see no colors."""


def as_html(certificate: Certificate) -> str:
    """Return the page."""
    environment = Environment(
        loader=FileSystemLoader(os.path.dirname(__file__)),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"seconds": _seconds, "lines": _lines}
    look, mark = LOOKS[certificate.verdict]
    template = environment.get_template("certificate.html")
    return template.render(it=certificate, look=look, mark=mark)


def _shown(value: Any) -> Any:
    """Return a value as the template shows it: a text without what would act, and not at any length."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value  # the template made it, or it is no text
    text = value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
    return visible(without_logins(text))


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(round(seconds, 3 if seconds < 1 else 1))


def _lines(text: str) -> list[str]:
    lines = text.splitlines()
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], f"… {more} more lines"]
