"""Mask secrets, in addresses, in commands and in messages: `***` stands for what may be a password.

    address     of a store, or a URL: an address that cannot be read is hidden rather than shown. A password of only
                digits in place of a port, or one in place of a user name, cannot be told from what it looks like
    command     NAME=VALUE and NAME: VALUE whose name says that it is a secret, --NAME VALUE, a password in a URL,
                `mysql -pSECRET`, `curl -u USER:SECRET`, `sshpass -p SECRET`. A masked value ends where its word ends.
                The string of `sh -c` is divided as a shell divides it
    message     a URL in it, whatever somebody mistyped

Any other secret of a command (`login hunter2`) is not found: `--record-command program` records no arguments.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MASK = "***"

# Names

_ENDS = (
    *("password", "passwd", "passphrase", "passwort", "secret", "token", "apikey", "accesskey"),
    *("privatekey", "secretkey", "authkey", "credential", "pwd", "pass", "passwrd", "pasword"),
)
_PARTS = frozenset(
    ("pw", "psw", "psk", "auth", "authorization", "cookie", "cred", "jwt", "passin", "passout")
)
_KEYS = frozenset(
    (
        "access", "account", "api", "app", "auth", "deploy", "encryption", "hmac", "license", "master",
        "private", "secret", "session", "shared", "signing", "storage", "webhook",
    )
)  # fmt: skip
_PUBLIC_KEYS = ("public", "oncecron")
_NO_SECRETS = frozenset(("bypass", "compass", "encompass", "trespass"))
_QUESTIONS = frozenset(("no", "ask", "prompt", "without"))
"""With these in front, an option is a flag: `--ask-become-pass`, `--no-password`."""
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


def is_secret_name(name: str) -> bool:
    """Return whether a variable, an option, a header or a parameter with this name holds a secret."""
    plain = name.lower().replace("-", "_").replace(".", "_").strip("_0123456789")
    parts = plain.split("_")
    last = parts[-1]
    if parts[0] in _QUESTIONS or last in _NO_SECRETS:
        return False
    if last in _PARTS or last.removesuffix("s").endswith(_ENDS) or last.endswith(_ENDS):
        return True
    of = parts[-2] if parts[1:] else ""
    if last.removesuffix("s") != "key" or not of:
        return False
    return of in _KEYS or (name.isupper() and of not in _PUBLIC_KEYS)


def _name_before(text: str, at: int) -> str:
    """Return the name that ends before an index, also with quotes, a bracket or blanks behind it."""
    end = at
    while end and text[end - 1] in " \t\"']":
        end -= 1
    start = end
    while start and text[start - 1] in _NAME:
        start -= 1
    return text[start:end]


# Addresses

_STORES = frozenset(
    ("postgresql", "postgres", "redis", "rediss", "valkey", "valkeys", "unix", "sqlite")
)
_WEB_HOOKS = (
    *("hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/"),
    *("api.telegram.org/bot", ".webhook.office.com/", "chat.googleapis.com/v1/spaces/"),
)
"""Hosts and beginnings of paths; the rest of the path is secret."""
_MISTYPED = ("postgres", "redis", "valkey")
_FILES = ("unix", "sqlite")
_SCHEME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-")
_NOT_IN_A_USER = frozenset(" \t\r\n/\\?#;,|='\"&<>()[]{}^`")
_SHOWN = frozenset(
    (
        "application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname",
        "fallback_application_name", "gssdelegation", "gssencmode", "gsslib", "host", "hostaddr", "keepalives",
        "keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname", "load_balance_hosts",
        "options", "passfile", "port", "replication", "require_auth", "requirepeer", "requiressl", "service",
        "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcertmode", "sslcompression",
        "sslcrl", "sslcrldir", "sslkey", "sslmode", "sslnegotiation", "sslrootcert", "sslsni",
        "target_session_attrs", "tcp_user_timeout", "user", "db", "keep", "sentinel_username", "ssl_ca_certs",
        "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile", "username", "wait",
    )
)  # fmt: skip
"""The parameters of libpq and of a Redis store that hold no secret. The value of any other one is hidden."""


def masked(text: str, *, store: bool = True) -> str:
    """Return an address without what may be a password. `store`: a store's; any other URL has other parameters."""
    return _with_mask(text, _spans(text, store))


def shown_url(url: str) -> str:
    """Return a URL of a service without what is a secret there: the login, the path and the parameters."""
    scheme, sign, rest = url.partition("://")
    host = next((rest[:at] for at, letter in enumerate(rest) if letter in "/?#"), rest)
    shown = f"{scheme}{sign}{host.rpartition('@')[2]}"
    return url if url.rstrip("/") == shown else f"{shown}/{MASK}"


def _spans_in_word(word: str) -> list[tuple[int, int]]:
    """Return what is hidden of the URL in a word of a command: `psql postgresql://...`, `--store=redis://...`."""
    at = word.find("://")
    while at > 0 and word[at - 1] in _SCHEME:
        at -= 1
    if at < 0:
        lower = word.lower()
        starts = (lower.find(name) for name in _MISTYPED) if "@" in word else ()
        at = next((start for start in starts if start >= 0), -1)
    if at < 0:
        return []
    store = word[at:].lower().startswith(_MISTYPED)
    return [(at + start, at + end) for start, end in _spans(word[at:], store)]


def without_logins(message: str) -> str:
    """Return a message without the passwords of the URLs in it: the last safeguard, for what somebody mistyped."""
    if "://" not in message:
        return message
    words = message.split(" ")
    for number, word in enumerate(words):
        bare = word.rstrip("'\"`;:,.()")
        for start, end in reversed(_spans_in_word(bare)):
            if bare[end : end + 1] == "@" or is_secret_name(_name_before(bare, start - 1)):
                words[number] = words[number][:start] + MASK + words[number][end:]
    return " ".join(words)


def without(message: str, address: str) -> str:
    """Return an error about the address of a store without what is hidden in it, wherever that stands.

    What the message quotes may be a part of a password, or one around which a library has cut the URL in another way.
    So it is shown only where the masked address shows it.
    """
    hidden = [address[start:end] for start, end in _spans(address, True)]
    if not hidden:
        return message
    from urllib.parse import unquote  # noqa: PLC0415 - for error messages alone

    forms = {form for piece in hidden for form in (piece, unquote(piece))}
    forms |= {form for piece in forms for form in (" ".join(piece.split()), repr(piece)[1:-1])}
    for form in sorted(filter(None, forms), key=len, reverse=True):
        message = message.replace(f'"{form}"', f'"{MASK}"').replace(f"'{form}'", f"'{MASK}'")
        if len(form) >= _SEARCHED:
            message = message.replace(form, MASK)
    return message


_SEARCHED = 4
"""A shorter secret is replaced only in quotes: its letters are in every sentence."""


def quoting(message: str, address: str) -> str:
    """Return what `without` does; what is between the first and the last quote must be in the masked address.

    For errors about the text of an address, which quote any part of it. Raises nothing.
    """
    message = without(message, address)
    shown = masked(address)
    if shown == address:
        return message
    starts = (
        at
        for at, sign in enumerate(message)
        if sign in "'\"" and not message[at - 1 : at].isalnum()
    )
    start = next(starts, -1)
    end = message.rfind(message[start]) if start >= 0 else -1
    if end <= start or message[start + 1 : end] in shown:
        return message
    return message[: start + 1] + MASK + message[end:]


def login_secret(address: str) -> str:
    """Return what `masked` hides in front of the @ in the address of a store, or the empty text."""
    begin = _after_scheme(address)
    span = _login(address, begin, _scheme_of(address, begin), True)
    return address[span[0] : span[1]] if span else ""


def _spans(text: str, store: bool) -> list[tuple[int, int]]:
    begin = _after_scheme(text)
    found = [*_in_pairs(text)] if store and not begin else []
    scheme = _scheme_of(text, begin)
    login = _login(text, begin, scheme, store)
    at = begin
    if login:
        found.append(login)
        at = login[1]
    if not _is_path(text, begin, scheme):
        found += _behind_hosts(text, at)
    if store and begin:
        found += _behind_parameter(text, begin)
    found += _in_web_hook(text, begin)
    query = text.find("?", at)
    if begin and query >= 0:  # a path of SQLite may contain one
        found += _in_parameters(text, query + 1, store and scheme != "sqlite")
    return _merged(found)


def _in_web_hook(text: str, begin: int) -> Iterator[tuple[int, int]]:
    for place in _WEB_HOOKS:
        at = text.find(place, begin)
        if begin and at >= 0:
            end = min(
                end for end in (text.find("?", at), text.find("#", at), len(text)) if end >= 0
            )
            yield at + len(place), end


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _behind_hosts(text: str, at: int) -> list[tuple[int, int]]:
    """Return what is neither a host nor a port, and all that is behind it."""
    at = max(text.rfind("@", at, _end_of_authority(text, at)) + 1, at)
    end = _end_of_authority(text, at)
    colon = text.find(":", at, end if at else len(text))
    if colon < 0:
        return []
    if colon < end and _are_hosts(text[at:end]) and (at or text[colon + 1 : end].isdigit()):
        return []
    return [(colon + 1, len(text))]


def _behind_parameter(text: str, begin: int) -> Iterator[tuple[int, int]]:
    """Yield all that is behind the first secret parameter if there is an @: it may be a part of the value."""
    at = text.find("=", max(text.find("?", begin), 0)) if "?" in text[begin:] else -1
    while 0 <= at < text.rfind("@"):
        if is_secret_name(_name_before(text, at)):
            yield at + 1, len(text)
            return
        at = text.find("=", at + 1)


def _is_path(text: str, begin: int, scheme: str) -> bool:
    """Return whether an address has an absolute path only, in whose first name there is no colon."""
    colon, slash = text.find(":", begin), text.find("/", begin)
    return scheme in _FILES and text[:begin].endswith("///") and (colon < 0 or 0 <= slash < colon)


def _scheme_of(text: str, begin: int) -> str:
    return text[:begin].partition(":")[0].rstrip("/").lower().partition("+")[0]


def _after_scheme(text: str) -> int:
    """Return the index behind `SCHEME://`, also with too few or too many signs; 0 without a scheme."""
    end = next((at for at, sign in enumerate(text) if sign not in _SCHEME), len(text))
    name = text[:end].lower()
    known = name.partition("+")[0] in _STORES
    at = end + 1 if text[end : end + 1] == ":" else end
    if not (name and text[end : end + 1] and (known or text[end : end + 3] == "://")):
        return 0
    if at == end and text[end] not in "/\\":
        return 0
    while text[at : at + 1] in ("/", "\\"):
        at += 1
    return at


def _login(text: str, begin: int, scheme: str, store: bool) -> tuple[int, int] | None:
    end, query = len(text), text.find("?", begin)
    if query >= 0 and _is_query(text, begin, query, store):
        end = query
    at = text.rfind("@", begin, end)
    colon = text.find(":", begin, max(at, begin))
    if at < 0 or _is_path(text, begin, scheme):
        return None
    host_end = _end_of_authority(text, begin)
    if not store and at > host_end and (colon < 0 or _are_hosts(text[begin:host_end])):
        return None
    if colon >= 0:
        return colon + 1, at
    if scheme in ("http", "https"):
        return begin, at  # a token
    return (begin, at) if store and _NOT_IN_A_USER.intersection(text[begin:at]) else None


def _end_of_authority(text: str, begin: int) -> int:
    return next((at for at in range(begin, len(text)) if text[at] in "/?#"), len(text))


def _are_hosts(text: str) -> bool:
    """Return whether a text is HOST, HOST:PORT or several, without a login."""
    for host in text.split(","):
        if host.startswith("["):
            host = host.partition("]")[2]  # noqa: PLW2901 - the address is left out
        name, _, port = host.partition(":")
        if _NOT_IN_A_USER.intersection(name) or not (port.isdigit() or not port):
            return False
    return True


def _is_query(text: str, begin: int, query: int, store: bool) -> bool:
    """Return whether a `?` begins the parameters, although an @ is behind it, and is no part of a password."""
    authority = text[begin : _end_of_authority(text, begin)]
    if not _are_hosts(authority.rpartition("@")[2]):
        return False
    before_at = text[query + 1 :].rpartition("@")[0]
    names = [piece.partition("=") for piece in before_at.split("&")]
    return all(
        equals and (not store or name in _SHOWN or is_secret_name(name))
        for name, equals, _ in names
    )


def _in_parameters(text: str, start: int, store: bool) -> Iterator[tuple[int, int]]:
    hidden: tuple[int, int] | None = None
    for piece in text[start:].split("&"):
        end = start + len(piece)
        name, equals, _ = piece.partition("=")
        secret = bool(equals) and is_secret_name(name) and _NAME.issuperset(name)
        shown = name in _SHOWN if store else not secret and not (hidden and not equals)
        if hidden and (shown or secret):
            yield hidden
            hidden = None
        if hidden:  # the rest of a value with a raw &
            hidden = hidden[0], end
        elif not shown:
            named = equals and name and _NAME.issuperset(name)
            hidden = (start + len(name) + 1 if named else start), end
        start = end + 1
    if hidden and hidden[0] < hidden[1]:
        yield hidden


def _in_pairs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the end of a text `NAME=VALUE ...` from the first name on whose value may be a secret."""
    at = text.find("=")
    while at >= 0:
        if _name_before(text, at) not in _SHOWN:
            at += 1
            while text[at : at + 1] == " ":
                at += 1
            yield at, len(text)
            return
        at = text.find("=", at + 1)


# Commands

_MARKS = (
    *("pass", "pwd", "pw", "psw", "psk", "secret", "token", "key", "cred", "auth", "cookie", "jwt"),
    *("pasword", "://", "mysql", "maria", "curl", *_MISTYPED),
)
"""A command without one of these has no secret that is looked for."""
_ATTACHED = frozenset(
    (
        *("mysql", "mysqldump", "mysqladmin", "mysqlcheck", "mysqlimport", "mysqlshow"),
        *("mariadb", "mariadb-dump", "mariadb-admin", "mariadb-check", "mariabackup", "sshpass"),
    )
)
"""Programs with `-pSECRET`."""
_PROGRAMS = frozenset((*_ATTACHED, "curl"))
_LOGINS = ("-u", "-U", "--user", "--proxy-user")  # of curl
_BEFORE_A_NAME = ("-u", "--user", "--name")  # `sudo -u mysql`, `docker run --name mysql`
_BEFORE_A_LINE = ("--shell", "--command", "eval")
_SIGNS = " \t\n;&|<>()"
_DEEPEST, _LONGEST = 5, 20_000
"""How deep command lines may nest, and how long a line may be, to be divided; beyond that, all is hidden."""


def masked_words(words: Sequence[str], depth: int = 0) -> list[str]:
    """Return the words of one command, or of a wrapper and the command it starts, without their secrets."""
    shown, program, before = [], "", ""
    for word in words:
        directory, _, name = word.rpartition("/")
        if name in _PROGRAMS and directory[-3:] in ("", "bin") and before not in _BEFORE_A_NAME:
            program = name
        shown.append(_masked_word(word, before, program, depth))
        before = word
    return shown


def masked_line(line: str, depth: int = 0) -> str:
    """Return a command line without its secrets; a word that has one is quoted anew."""
    lower = line.lower()
    if not any(mark in lower for mark in _MARKS):
        return line
    if depth > _DEEPEST or len(line) > _LONGEST:
        return MASK
    from oncecron.core import shell_words  # noqa: PLC0415 - most commands hold no secret

    try:
        found = shell_words.tokens(line.encode("utf-8", "surrogateescape"))
    except shell_words.UnclosedError:
        words = line.split(" ")
        shown = masked_words([word.strip("'\"\\(){}$`") for word in words], depth + 1)
        first = next((at for at, word in enumerate(shown) if MASK in word), None)
        return line if first is None else " ".join((*words[:first], MASK))
    texts = [token.text.decode("utf-8", "surrogateescape") for token in found]
    words_at: list[int] = []
    for at, token in enumerate((*found, None)):
        if token and token.kind in (shell_words.WORD, shell_words.COMMENT):
            words_at.append(at)
        elif token is None or token.kind == shell_words.OPERATOR:
            values = [found[place].value.decode("utf-8", "surrogateescape") for place in words_at]
            for place, word, shown_word in zip(
                words_at, values, masked_words(values, depth), strict=True
            ):
                if shown_word != word:
                    texts[place] = _written(shown_word)
            words_at = []
    return "".join(texts)


def _written(word: str) -> str:
    from oncecron.core.shell_words import quoted  # noqa: PLC0415 - most commands hold no secret

    if "'" not in word and any(sign in word for sign in "$`"):
        return f'"{word}"' if any(sign in word for sign in _SIGNS) else word
    plain = word.replace(MASK, "x").encode("utf-8", "surrogateescape")
    text = word.encode("utf-8", "surrogateescape")
    return word if quoted(plain) == plain else quoted(text).decode("utf-8", "surrogateescape")


def _masked_word(word: str, before: str, program: str, depth: int) -> str:
    """Return a word without its secrets; `before`: the word before it, `program`: the last known one before it."""
    if before[1:] and before[0] == "-" and "=" not in before and is_secret_name(before):
        return MASK
    login = _masked_login(word, before, program)
    if login is not None:
        return login
    has_signs = any(sign in word for sign in _SIGNS)
    string_follows = before[:1] == "-" and before[1:].isalpha() and before.endswith("c")
    if has_signs and (string_follows or before in _BEFORE_A_LINE):
        return masked_line(word, depth + 1)
    shown = _without_values(word)
    if "$(" not in shown and "`" not in shown:
        return masked_line(shown, depth + 1) if has_signs else shown
    signs = ("$(", "`", ")")
    for sign in signs:
        shown = shown.replace(sign, f"\0{sign}\0")
    return "".join(
        piece if piece in signs else masked_line(piece, depth + 1) for piece in shown.split("\0")
    )


def _masked_login(word: str, before: str, program: str) -> str | None:
    """Return a word of a known program without the password that it is; None if it is none."""
    if program == "sshpass" and before == "-p":
        return MASK
    if program in _ATTACHED and word[:2] == "-p" and word[2:]:
        return f"-p{MASK}"
    if program == "curl" and (before in _LOGINS or _has_login(word)) and ":" in word:
        return f"{word.partition(':')[0]}:{MASK}"
    return None


def _has_login(word: str) -> bool:
    """Return whether a word of curl has `USER:SECRET` behind an option, as in `-fsSLuUSER:SECRET`."""
    if word[:2] == "--":
        name, equals, _ = word.partition("=")
        return bool(equals) and name in _LOGINS
    return word[:1] == "-" and "u" in word.partition(":")[0].lower()


def _without_values(word: str) -> str:
    """Return a word without the passwords of a URL, and up to the first value of a name that says it is a secret."""
    spans = _spans_in_word(word)
    names = (at for at, sign in enumerate(word) if sign in "=:")
    for at in names:
        if is_secret_name(_name_before(word, at)) and (value := word[at + 1 :].strip()):
            spans.append((word.index(value, at + 1), len(word)))
            break
    return _with_mask(word, _merged(spans))


def _with_mask(text: str, spans: list[tuple[int, int]]) -> str:
    shown, done = "", 0
    for start, end in spans:
        shown, done = shown + text[done:start] + MASK, end
    return shown + text[done:]
