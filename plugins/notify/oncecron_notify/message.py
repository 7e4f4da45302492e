"""What is sent to a channel: one message for all changes of a pass, as text, as JSON or for a chat.

A key, a reason, a command or the output of a job may come from anybody who may write to the store or to a job's output.
So no text is taken for a header, for an escape sequence of a terminal, or for a mention in a chat.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from oncecron.config.settings import read_elsewhere
from oncecron.core.masking import visible, without_logins
from oncecron.core.text import Clock
from oncecron.host.local_time import shown_zone
from oncecron.watch.findings import STATES, cure, sentence, title

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from oncecron.watch.findings import Finding

RECOVERED, CLOSED = "recovered", "closed"
ENDED = (RECOVERED, CLOSED)
FORMAT = 1
"""The version of the JSON form."""

_LONGEST_TEXT = 200_000
_LONGEST_CHAT = 12_000
"""The most characters of a message, before a chat's own limit."""
_LONGEST_LINE = 1000
_LONGEST_SUBJECT = 69
"""With `Subject: ` the line of a mail has at most the 78 characters that RFC 5322 recommends, so nothing folds it."""
_BREAK = "\u200b"
"""A blank without width: Mattermost takes `@all` and `<!all>` for a mention, also where a webhook sends them."""


class Change(NamedTuple):
    """What is to be said about one finding."""

    change: str
    finding: Finding
    """Of one that is over: in the state `ok`."""
    previous: str
    """Its state as the channel knows it; `ok` if it does not."""
    change_id: str = ""
    """The same in whichever message it comes, until it is acknowledged; see `with_ids`."""


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

    def named(self, text: str) -> str:
        """Return a text for this message: its commands mean its namespace."""
        return read_elsewhere(text, self.namespace)


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
    """Return the message for people, whose first line is its summary."""
    return "\n".join([summary(message), "", mail(message)])


def mail(message: Message) -> str:
    """Return what stands below a subject that has the summary."""
    return "\n".join(_body(message, _LONGEST_TEXT)) + "\n"


def chat(message: Message, form: Chat) -> str:
    """Return the JSON for a chat. What is too long for it is cut at a character, and that is said."""
    head = summary(message)
    *lines, last = _body(message, _LONGEST_CHAT)
    body = "\n".join(lines).strip("\n")

    def content(kept: int) -> dict[str, Any]:
        cut = "" if kept == len(body) else f"\n{message.named(_CUT)}"
        return form.content(head, f"{body[:kept]}{cut}\n\n{last}")

    kept = len(body)
    if form.size(content(kept)) > form.most:
        kept = bisect_right(range(kept), form.most, key=lambda kept: form.size(content(kept))) - 1
    return json.dumps(content(max(kept, 0)))


_CUT = "... cut here, because the chat takes no more; see `oncecron check`"


class Chat(NamedTuple):
    """The form of a chat's messages, in which no text takes effect: no mention, no markup, no false link."""

    content: Callable[[str, str], dict[str, Any]]
    """Returns the JSON of a head and a body."""
    size: Callable[[dict[str, Any]], int]
    """Returns what the chat measures of it."""
    most: int
    """The largest size that it accepts."""


def _slack(head: str, body: str) -> dict[str, Any]:
    """Slack asks to escape three signs, and cuts a text after 40,000 characters."""

    def escaped(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    return {"text": _with_code(escaped(head), escaped(body))}


def _mattermost(head: str, body: str) -> dict[str, Any]:
    """Mattermost links every @mention, and translates Slack's `<!all>` (its page on Slack compatibility).

    It refuses a text of more than 16,383 characters (POST_MESSAGE_MAX_RUNES_V2).
    """

    def escaped(text: str) -> str:
        return text.replace("<", f"<{_BREAK}").replace("@", f"@{_BREAK}")

    return {"text": _with_code(escaped(head), escaped(body))}


def _discord(head: str, body: str) -> dict[str, Any]:
    """Discord refuses a content of more than 2,000 characters (Execute Webhook).

    Nobody is mentioned, and links get no preview (flag 1 << 2).
    """
    escaped = "".join(f"\\{sign}" if sign in "\\*_~|<>[]" else sign for sign in head)
    return {
        "content": _with_code(escaped, body),
        "allowed_mentions": {"parse": []},
        "flags": 1 << 2,
    }


def _teams(head: str, body: str) -> dict[str, Any]:
    """Return an adaptive card for Microsoft Teams' workflow "when a webhook request is received".

    A TextRun has no Markdown. A line is an element of its own, whose indentation is of blanks that do not collapse.
    """

    def line(text: str, style: dict[str, Any]) -> dict[str, Any]:
        indented = len(text) - len(text.lstrip(" "))
        shown = "\u00a0" * indented + text[indented:] or "\u00a0"
        run = {"type": "TextRun", "text": shown, **style}
        return {"type": "RichTextBlock", "inlines": [run], "spacing": "None"}

    lines = [line(each, {"fontType": "Monospace", "size": "Small"}) for each in body.split("\n")]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": [line(head, {"weight": "Bolder"}), *lines],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {
        "type": "message",
        "attachments": [{"contentType": kind, "contentUrl": None, "content": card}],
    }


def _with_code(head: str, body: str) -> str:
    head, body = head.replace("`", "'"), body.replace("`", "'")
    return f"{head}\n```\n{body}\n```"


CHATS = {
    "slack": Chat(_slack, lambda content: len(content["text"]), 40_000),
    "mattermost": Chat(_mattermost, lambda content: len(content["text"]), 16_383),
    # Clients count UTF-16, in which no text is shorter.
    "discord": Chat(
        _discord, lambda content: len(content["content"].encode("utf-16-le")) // 2, 2_000
    ),
    # Teams keeps the card as a text in JSON, at most 28,672 bytes with what it adds (MessageSizeExceeded).
    "teams": Chat(_teams, lambda content: len(json.dumps(json.dumps(content))), 24_000),
}


def as_json(message: Message) -> str:
    """Return the published fields as one JSON object."""
    shown = Clock(utc=True)
    changes = [
        _fields(message, each, message.evidence.get(place), shown)
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


def _fields(
    message: Message, change: Change, evidence: Evidence | None, shown: Clock
) -> dict[str, Any]:
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
        "cure": (message.named(cure(found)) or None) if change.change not in ENDED else None,
    }


def _body(message: Message, limit: int) -> Iterator[str]:
    """Yield what the summary does not say. Of a single change first what happened, then what to do."""
    shown = Clock(utc=True, zone=shown_zone(message.zone))
    if message.test:
        yield "This is a test of `oncecron notify --test`. Nothing is wrong."
    if len(message.changes) == 1:
        yield from _alone(message, limit)
    else:
        yield from _several(message, limit // 2)
    many = "1 finding is" if message.open == 1 else f"{message.open or 'no'} findings are"
    now = "" if message.test else f"Now {many} open. "
    at = shown.seconds(message.at)
    yield ""
    yield f"{now}Sent by {_clean(message.host)}, namespace {message.namespace}, at {at}."


def _alone(message: Message, limit: int) -> Iterator[str]:
    [change] = message.changes
    if change.change == "reminder" or _clean(sentence(change.finding)) not in summary(message):
        yield _line(change)
    lines = [*_account(message.evidence[0])] if 0 in message.evidence else []
    has_account = len(lines) > 0 and sum(map(len, lines)) + len(lines) <= limit
    yield from lines if has_account else ()
    yield from _to_do(message, change, has_account=has_account)


def _several(message: Message, limit: int) -> Iterator[str]:
    """Yield a line for each change, below those with the same cure this one, and what happened."""
    left = limit
    to_do = [[f"  {each}" for each in _to_do(message, change)] for change in message.changes]
    for place, change in enumerate(message.changes):
        is_last = to_do[place : place + 1] != to_do[place + 1 : place + 2]
        line = "\n".join([_line(change), *(to_do[place] if is_last else ())])
        left -= len(line) + 1
        if left < 0:
            more = len(message.changes) - place
            yield message.named(f"... and {more} more changes; see `oncecron check`")
            break
        yield line
    left = limit
    for place, evidence in message.evidence.items():
        key = _clean(message.changes[place].finding.key or "")
        lines = ["", f"{key}:", *(f"  {each}" for each in _account(evidence))]
        left -= sum(map(len, lines)) + len(lines)
        if left < 0:
            break
        yield from lines


def _line(change: Change) -> str:
    found, is_over = change.finding, change.change in ENDED
    state = change.change if is_over else found.state
    again = " (reminder)" if change.change == "reminder" else ""
    return _cut(f"{state}{again}: {_clean(sentence(found))}", _LONGEST_LINE)


def _to_do(message: Message, change: Change, *, has_account: bool = False) -> Iterator[str]:
    what = "" if change.change in ENDED else cure(change.finding, has_account=has_account)
    if what:
        yield f"To do: {_clean(message.named(what))}"


def _account(evidence: Evidence) -> Iterator[str]:
    yield from (_cut(_clean(each), _LONGEST_LINE) for each in evidence.account)
    if evidence.output:
        yield "The end of its output:"
        yield from (
            f"| {_cut(_clean(each), _LONGEST_LINE)}" for each in evidence.output.splitlines()
        )


def _clean(words: str) -> str:
    return visible(without_logins(words))


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 3] + "..."
