"""What is sent to a channel: one message for all changes of a pass, as text, as JSON or for a chat.

A key, a reason, a command or the output of a job may come from anybody who may write to the store or to a job's output.
So no text is taken for a header, for an escape sequence of a terminal, or for a mention in a chat.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.alerts.changes import CLOSED, ENDED
from oncecron.alerts.findings import STATES, cure, sentence, title
from oncecron.core.masking import without_logins
from oncecron.core.stderr import visible
from oncecron.core.text import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from oncecron.alerts.changes import Change

FORMAT = 1
"""The version of the JSON form."""

_LIMITS = {"text": 200_000, "slack": 12_000, "mattermost": 12_000}
"""The most characters of a message. Slack cuts a text after 40,000, Mattermost refuses one of over 16,383."""
_LONGEST_LINE = 1000
_LONGEST_SUBJECT = 69
"""With `Subject: ` the line of a mail has at most the 78 characters that RFC 5322 recommends, so nothing folds it."""
_BREAK = "\u200b"
"""A blank without width: Mattermost takes `@all` and `<!all>` for a mention, also where a webhook sends them."""


class Evidence(NamedTuple):
    """What is known of the tick behind a finding."""

    account: Sequence[str] = ()
    """As `oncecron why` tells it."""
    output: str | None = None
    """The end of the captured output."""


class Message(NamedTuple):
    """What a channel is to be notified of."""

    message_id: str
    """The same for the same changes of a channel, until it has acknowledged them: to find repetitions."""
    channel: str
    namespace: str
    host: str
    """Where it was made."""
    at: float
    changes: Sequence[Change]
    evidence: Mapping[int, Evidence]
    """By the place of the change; the first ones have it."""
    open: int
    """How many findings there are for this channel, the recovered ones not counted."""
    test: bool = False
    zone: str | None = None
    """In which the text shows times; None: UTC."""

    @property
    def state(self) -> str:
        """Return the worst state of the changes; `ok`: all have recovered."""
        return max((each.finding.state for each in self.changes), key=STATES.index, default="ok")


def summary(message: Message) -> str:
    """Return one line for a subject: the state, the worst change by its name, and how many others there are."""
    if message.test:
        return f"oncecron TEST: channel {_clean(message.channel)} works"
    first, others = message.changes[0], len(message.changes) - 1
    state = CLOSED if {each.change for each in message.changes} == {CLOSED} else message.state
    head, more = f"oncecron {state.upper()}: ", f" and {others} more" if others else ""
    room = _LONGEST_SUBJECT - len(head) - len(more)
    words = _clean(sentence(first.finding))
    if len(words) > room and first.change in ENDED:
        words = re.split(r"[:;,] ", words)[0]
    elif len(words) > room:
        words = _clean(title(first.finding))
    return f"{head}{_cut(words, room)}{more}"


def text(message: Message) -> str:
    """Return the message for people."""
    return "\n".join([summary(message), "", *_body(message, _LIMITS["text"])]) + "\n"


def slack(message: Message) -> str:
    """Return the JSON of Slack's incoming webhooks. It asks to escape three signs."""
    return _chat(
        message,
        "slack",
        lambda each: each.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
    )


def mattermost(message: Message) -> str:
    """Return the JSON of Mattermost's incoming webhooks.

    It links every @mention, and translates Slack's `<!all>` (developers.mattermost.com, Slack compatibility).
    """
    return _chat(
        message,
        "mattermost",
        lambda each: each.replace("<", f"<{_BREAK}").replace("@", f"@{_BREAK}"),
    )


def _chat(message: Message, form: str, escaped: Callable[[str], str]) -> str:
    """Return a message in a block of code, in which a chat formats nothing."""
    body = "\n".join(_body(message, _LIMITS[form])).strip("\n").replace("`", "'")
    head = escaped(summary(message).replace("`", "'"))
    return json.dumps({"text": f"{head}\n```\n{escaped(body)}\n```"})


def as_json(message: Message) -> str:
    """Return the published fields as one JSON object."""
    shown = Clock(utc=True)
    changes = [
        _fields(each, message.evidence.get(place), shown)
        for place, each in enumerate(message.changes)
    ]
    fields = {
        "format": FORMAT,
        "id": message.message_id,
        "channel": message.channel,
        "namespace": message.namespace,
        "host": message.host,
        "at": shown.exactly(message.at),
        "test": message.test,
        "state": message.state,
        "summary": summary(message),
        "open": message.open,
        "changes": changes,
    }
    return json.dumps(fields, allow_nan=False)


def _fields(change: Change, evidence: Evidence | None, shown: Clock) -> dict[str, Any]:
    found = change.finding
    account = None if evidence is None else [*evidence.account]
    output = None if evidence is None else evidence.output
    return {
        "id": change.change_id,
        "change": change.change,
        **found._asdict(),
        "since": shown.exactly(found.since),
        "previous": change.previous,
        "account": account,
        "output": output,
        "cure": (cure(found) or None) if change.change not in ENDED else None,
    }


def _body(message: Message, limit: int) -> Iterator[str]:
    """Yield the lines below the summary: each change, then the accounts, as far as they fit."""
    shown = Clock(utc=True, zone=message.zone)
    if message.test:
        yield "This is a test of `oncecron notify --test`. Nothing is wrong."
    left = limit // 2
    for place, change in enumerate(message.changes):
        line = "\n".join(_lines(change))
        left -= len(line) + 1
        if left < 0:
            yield f"... and {len(message.changes) - place} more changes; see `oncecron check`"
            break
        yield line
    left = limit // 2
    for place, evidence in message.evidence.items():
        lines = ["", *_account(message.changes[place], evidence)]
        left -= sum(map(len, lines)) + len(lines)
        if left < 0:
            break
        yield from lines
    many = "1 finding is" if message.open == 1 else f"{message.open or 'no'} findings are"
    now = "" if message.test else f"Now {many} open. "
    at = shown.seconds(message.at)
    yield ""
    yield f"{now}Sent by {_clean(message.host)}, namespace {message.namespace}, at {at}."


def _lines(change: Change) -> Iterator[str]:
    found, is_over = change.finding, change.change in ENDED
    state = change.change if is_over else found.state
    again = " (reminder)" if change.change == "reminder" else ""
    yield _cut(f"{state}{again}: {_clean(sentence(found))}", _LONGEST_LINE)
    if not is_over and (what := cure(found)):
        yield f"  To do: {_clean(what)}"


def _account(change: Change, evidence: Evidence) -> Iterator[str]:
    yield f"{_clean(change.finding.key or '')}:"
    yield from (f"  {_cut(_clean(each), _LONGEST_LINE)}" for each in evidence.account)
    if evidence.output:
        yield "  The end of its output:"
        yield from (
            f"  | {_cut(_clean(each), _LONGEST_LINE)}" for each in evidence.output.splitlines()
        )


def _clean(words: str) -> str:
    return visible(without_logins(words))


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 3] + "..."
