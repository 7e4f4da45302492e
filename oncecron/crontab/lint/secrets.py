"""Secrets in variables and arguments: where they are, so that a message names the place and never shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecron.core.masking import secrets_in
from oncecron.core.secrets import hidden_in_url, is_secret_name
from oncecron.crontab.simple_commands import simple_commands

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NOT_ITSELF = ("$", "`", "/", "./", "~", "<", "@", "-", "{")


def secret_in_variable(name: str, value: str) -> str | None:
    """Return the secret in a variable, None if there is none."""
    if is_secret_name(name) and _is_literal(value):
        return value
    in_urls = (value[start:end] for start, end in hidden_in_url(value) if "@" in value[end:])
    return next(filter(_is_literal, in_urls), None)


def secrets_in_arguments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each secret in the words of a command, and of commands within a word."""
    for found in secrets_in(words):
        secret = words[found.word][found.start : found.end]
        if found.sure and _is_literal(secret):
            yield found.place, secret
    for word in words:
        for simple in simple_commands(word.replace("$(", ";(").replace("`", ";")) or ():
            if simple.words != (word,):  # such as the string of --shell, or of sh -c
                yield from secrets_in_arguments(simple.words)


def _is_literal(value: str) -> bool:
    """Return whether a value is the secret itself, not a variable or a file that contains it."""
    return bool(value) and not value.startswith(_NOT_ITSELF)
