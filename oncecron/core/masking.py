"""Mask secrets, in addresses, in commands and in messages: `***` stands for what may be a password.

    address     of a store, or a URL: an address that cannot be read is hidden rather than shown. So is what stands
                alone before the @ of a Redis: a password without its colon. A password of only digits in place of a
                port, or one in place of a user name of PostgreSQL, cannot be told from what it looks like
    command     NAME=VALUE and NAME: VALUE whose name says that it is a secret, --NAME VALUE, a password in a URL, the
                log-in options of known programs. A word with blanks, such as the string of `sh -c`, is shown up to its
                first secret, because what is behind it may belong to it
    message     a URL in it, whatever somebody mistyped

What is shown at all is valid UTF-8 (`valid`) without control characters (`visible`).

Any other secret of a command (`login hunter2`) is not found: `--record-command program` records no arguments.
"""

from __future__ import annotations

import os

from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MASK = "***"

# Names

_ENDS = (
    *("password", "passwd", "passphrase", "passwort", "secret", "token", "apikey", "accesskey", "privatekey"),
    *("secretkey", "authkey", "credential", "pwd", "pass", "passwrd", "pasword"),
)  # fmt: skip
_PARTS = ("pw", "psw", "psk", "auth", "authorization", "bearer", "cookie", "cred", "jwt", "passin",
          "passout", "sig")  # fmt: skip
_KEYS = ("access", "api", "app", "auth", "encryption", "license", "master", "private", "secret",
         "session", "signing")  # fmt: skip
"""Before `key`. In upper case, every name that ends so is one of a secret but these:"""
_PUBLIC_KEYS = ("public", "oncecron")
_NO_SECRETS = ("bypass", "compass", "encompass", "trespass")
_QUESTIONS = ("no", "ask", "prompt", "without")
"""With these in front, an option is a flag: `--ask-become-pass`, `--no-password`."""
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


def is_secret_name(name: str) -> bool:
    """Return whether a variable, an option, a header or a parameter with this name holds a secret."""
    plain = name.lower().replace("-", "_").replace(".", "_").strip("_0123456789")
    *before, last = plain.split("_")
    if last in _NO_SECRETS or (before and before[0] in _QUESTIONS):
        return False
    if last in _PARTS or last.endswith(_ENDS) or last.removesuffix("s").endswith(_ENDS):
        return True
    if last.removesuffix("s") != "key" or not before:
        return False
    return before[-1] in _KEYS or (name.isupper() and before[-1] not in _PUBLIC_KEYS)


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

_STORES = ("postgresql", "postgres", "redis", "rediss", "valkey", "valkeys", "unix", "sqlite")
_LOGIN_IS_SECRET = ("http", "https", "redis", "rediss", "valkey", "valkeys")
_MISTYPED = ("postgres", "redis", "valkey")
_FILES = ("unix", "sqlite")
_SCHEME = _NAME - {"_"} | {"+"}
_NOT_IN_A_USER = frozenset(" \t\r\n/\\?#;,|='\"&<>()[]{}^`")
_SHOWN = frozenset(
    (
        "application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname",
        "fallback_application_name", "gssdelegation", "gssencmode", "gsslib", "host", "hostaddr", "keepalives",
        "keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname", "load_balance_hosts", "options",
        "passfile", "port", "replication", "require_auth", "requirepeer", "requiressl", "service",
        "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcertmode", "sslcompression", "sslcrl",
        "sslcrldir", "sslkey", "sslmode", "sslnegotiation", "sslrootcert", "sslsni", "target_session_attrs",
        "tcp_user_timeout", "user", "db", "keep", "sentinel_username", "ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile",
        "ssl_check_hostname", "ssl_keyfile", "username", "wait",
    )
)  # fmt: skip
"""The parameters of libpq and of a Redis store that hold no secret. The value of any other one is hidden."""
_SEARCHED = 4
"""A shorter secret is replaced only in quotes: its letters are in every sentence."""


def masked(text: str, *, store: bool = True) -> str:
    """Return an address without what may be a password. `store`: a store's; any other URL has other parameters."""
    for start, end in reversed(_spans(text, store)):
        text = text[:start] + MASK + text[end:]
    return text


def shown_url(url: str) -> str:
    """Return a URL of a service without what is a secret there: the login, the path and the parameters."""
    scheme, sign, rest = url.partition("://")
    host = rest[: _first_of("/?#", rest)]
    shown = f"{scheme}{sign}{host.rpartition('@')[2]}"
    return url if url.rstrip("/") == shown else f"{shown}/{MASK}"


def without_urls(message: str) -> str:
    """Return a message without the secrets of the URLs that it quotes: a value in the place of another one."""
    for quote in "'\"":
        first, *others = message.split(f"{quote}http")
        for other in others:
            url, _, behind = f"http{other}".partition(quote)
            first += f"{quote}{shown_url(url)}{quote}{behind}"
        message = first
    return message


def without_logins(message: str) -> str:
    """Return a message without the passwords of the URLs in it: the last safeguard, for what somebody mistyped."""
    if "://" not in message:
        return message
    words = message.split(" ")
    for number, word in enumerate(words):
        bare = word.rstrip("'\"`;:,.()")
        begin = _url_in(bare)
        for start, end in reversed(_spans(bare[begin:], _is_store(bare[begin:]))):
            at, behind = begin + start, begin + end
            if bare[behind : behind + 1] == "@" or is_secret_name(_name_before(bare, at - 1)):
                words[number] = words[number][:at] + MASK + words[number][behind:]
    return " ".join(words)


def without(message: str, address: str) -> str:
    """Return an error about the address of a store without what is hidden in it, wherever that stands.

    What the message quotes may be a part of a password, or one around which a library has cut the URL in another way.
    So it is shown only where the masked address shows it.
    """
    hidden = [address[start:end] for start, end in _spans(address, True)]
    if not hidden:
        return message
    hidden.append(login_secret(address))
    from urllib.parse import unquote  # noqa: PLC0415 - for error messages alone

    forms = {form for piece in hidden for form in (piece, unquote(piece))}
    forms |= {form for piece in forms for form in (" ".join(piece.split()), repr(piece)[1:-1])}
    for form in sorted(filter(None, forms), key=len, reverse=True):
        message = message.replace(f'"{form}"', f'"{MASK}"').replace(f"'{form}'", f"'{MASK}'")
        if len(form) >= _SEARCHED:
            message = message.replace(form, MASK)
    return message


def quoting(message: str, address: str) -> str:
    """Return what `without` does; what is between the first and the last quote must be in the masked address.

    For errors about the text of an address, which quote any part of it. Raises nothing.
    """
    message = without(message, address)
    shown = masked(address)
    if shown == address:
        return message
    signs = (at for at, sign in enumerate(message) if sign in "'\"")
    start = next((at for at in signs if not message[at - 1 : at].isalnum()), -1)
    end = message.rfind(message[start]) if start >= 0 else -1
    if end <= start or message[start + 1 : end] in shown:
        return message
    return message[: start + 1] + MASK + message[end:]


def login_secret(address: str) -> str:
    """Return what may be the login of an address that cannot be read; nothing of one that can be."""
    begin = _after_scheme(address)
    if _spans(address, True) != [(begin, len(address))]:
        return ""
    login = address[begin:].rpartition("@")[0]
    return login.partition(":")[2] or login


def _spans(text: str, store: bool) -> list[tuple[int, int]]:
    """Return what is hidden of an address: all that is behind its scheme, where it cannot be read."""
    begin = _after_scheme(text)
    if store and not begin:
        return _in_pairs(text)
    scheme = text[:begin].partition(":")[0].rstrip("/").lower().partition("+")[0]
    end = _first_of("/?#", text, begin)
    path, question, query = text[end:].partition("?")
    login, at, hosts = text[begin:end].rpartition("@")
    if scheme in _FILES and text[:begin].endswith("///") and ":" not in text[begin:end]:
        path = login = hosts = at = ""  # a path of a file may contain any sign
    if not _are_hosts(hosts) or (store and ("@" in login + path or _may_end_a_login(query))):
        return [(begin, len(text))]
    found = []
    user, colon, _ = login.partition(":")
    if at and (colon or scheme in _LOGIN_IS_SECRET or _NOT_IN_A_USER.intersection(user)):
        found.append((begin + len(user) + 1 if colon else begin, begin + len(login)))
    if question:
        found += _in_parameters(text, len(text) - len(query), store and scheme != "sqlite")
    return [(start, end) for start, end in found if start < end]


def _may_end_a_login(query: str) -> bool:
    """Return whether what looks like a query may be the rest of a password, which has a `?` in it."""
    return any(
        "@" in piece and name not in _SHOWN and not is_secret
        for piece, name, _, is_secret in _parameters(query)
    )


def _parameters(query: str) -> Iterator[tuple[str, str, bool, bool]]:
    """Yield each parameter, its name, whether it may be a name, and whether it is that of a secret."""
    for piece in query.split("&"):
        name, equals, _ = piece.partition("=")
        is_name = equals != "" and _NAME.issuperset(name)
        yield piece, name, is_name, is_name and is_secret_name(name)


def _in_pairs(text: str) -> list[tuple[int, int]]:
    """Return what is hidden of a text that is no URL: `NAME=VALUE ...` from the first secret on, and behind a colon."""
    at = text.find("=")
    while at >= 0 and _name_before(text, at) in _SHOWN:
        at = text.find("=", at + 1)
    starts = [at + 1 + (text[at + 1 : at + 2] == " ")] if at >= 0 else []
    if ":" in text or "@" in text:
        starts.append(text.find(":") + 1)
    return [(min(starts), len(text))] if starts and min(starts) < len(text) else []


def _first_of(signs: str, text: str, begin: int = 0) -> int:
    return next((at for at in range(begin, len(text)) if text[at] in signs), len(text))


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


def _are_hosts(text: str) -> bool:
    """Return whether a text is HOST, HOST:PORT or several, without a login."""
    for host in text.split(","):
        if host.startswith("["):
            host = host.partition("]")[2]  # noqa: PLW2901 - the address is left out
        name, _, port = host.partition(":")
        if _NOT_IN_A_USER.intersection(name) or not (port.isdigit() or not port):
            return False
    return True


def _in_parameters(text: str, start: int, store: bool) -> Iterator[tuple[int, int]]:
    """Yield what is hidden of a query: a secret and what is behind it, where that is no known parameter of a store."""
    first = True  # behind a hidden value, a name may be a part of it
    for piece, name, is_name, is_secret in _parameters(text[start:]):
        end = start + len(piece)
        if is_secret or (store and name not in _SHOWN):
            shown = len(name) + 1 if is_secret or (first and is_name) else 0
            yield start + shown, end if store else len(text)
            if not store:
                return
            first = False
        start = end + 1


def _url_in(word: str) -> int:
    """Return where the URL in a word begins, also a mistyped one: `--store=redis:/u:...`; its length without one."""
    at = word.find("://")
    while at > 0 and word[at - 1] in _SCHEME:
        at -= 1
    if at < 0 and "@" in word:
        starts = (word.lower().find(name) for name in _MISTYPED)
        at = next((start for start in starts if start >= 0), -1)
    return at if at >= 0 else len(word)


def _is_store(url: str) -> bool:
    return url.lower().startswith(_MISTYPED)


# Commands

_ASKED = {"-p": ""}
_APART, _UPPER, _AUTH, _SAMBA = {"-p": ""}, {"-P": ""}, {"-a": ""}, {"-U": "%", "--user": "%"}
_PROGRAMS: dict[str, Mapping[str, str]] = {
    "curl": dict.fromkeys(("-u", "-U", "-E", "--user", "--proxy-user", "--cert", "--proxy-cert"), ":") | {"-b": "="},
    **dict.fromkeys(("mysq*", "mari*", "xtra*", "7z", "7za", "rar", "unrar"), _ASKED),
    **dict.fromkeys(("sshpass", "cqlsh", "login", "mong*", "ncft*"), _APART),  # `docker login`, `az login`
    **dict.fromkeys(("zip", "unzip", "sqlcmd", "bcp", "tsql", "ipmitool", "mosq*"), _UPPER),
    **dict.fromkeys(("redis-cli", "valkey-cli", "keydb-cli"), _AUTH),
    **dict.fromkeys(("smbclient", "smbget", "rpcclient"), _SAMBA),
    "http": {"-a": ":"}, "lftp": {"-u": ","}, "snmp*": {"-c": "", "-A": "", "-X": ""},
    "ldappasswd": {"-w": "", "-a": "", "-s": ""}, "ldap*": {"-w": ""},
}  # fmt: skip
"""Options with a secret: the sign in front of it in the value, empty if all of the value is secret.

`*` stands for more letters. The next word is no value of `_ASKED`: `mysql -p` asks for it.
"""
_BEFORE_A_NAME = ("-u", "--user", "--name")  # `sudo -u mysql`, `docker run --name mysql`
_BETWEEN = str.maketrans(";&|()`\t\n", "        ")
_QUOTES = "'\"{}[]$\\"


def masked_words(words: Sequence[str]) -> list[str]:
    """Return the words of one command, or of a wrapper and the command it starts, without their secrets."""
    shown: list[str] = []
    before, program, sign = "", None, None
    for word in words:
        if before not in _BEFORE_A_NAME:
            program = _options_of(word) or program
        if before[1:] and before[0] == "-" and "=" not in before and is_secret_name(before):
            masked_word, sign = MASK, None
        elif sign is not None:
            masked_word, sign = _without_value(word, sign), None
        else:
            masked_word, sign = _masked_option(word, program) if program else (word, None)
            if masked_word == word:
                masked_word = masked_line(word)
        shown.append(masked_word)
        before = word
    return shown


def _options_of(word: str) -> Mapping[str, str] | None:
    directory, _, name = word.rpartition("/")
    if directory[-3:] not in ("", "bin"):
        return None
    is_plain = name.replace("-", "").replace("_", "").isalpha()
    return _PROGRAMS.get(name) or (_PROGRAMS.get(f"{name[:4]}*") if is_plain else None)


def _masked_option(word: str, program: Mapping[str, str]) -> tuple[str, str | None]:
    """Return a word without the secret in it, and the sign in front of one in the next word, if any.

    `-fsSu` is also `-u`: in others than the first, a letter is looked for at the end alone.
    """
    for name, sign in program.items():
        start = f"{name}=" if name[:2] == "--" else name
        if word.startswith(start) and word != start:
            return start + _without_value(word[len(start) :], sign), None
        is_last = word[:1] == "-" and word[1:].isalpha() and word[1:].endswith(name[1:])
        if word == name or is_last:
            return word, None if program is _ASKED else sign
    return word, None


def _without_value(value: str, sign: str) -> str:
    """Return the value of an option without the secret behind a sign; all of it is hidden if nothing is behind it."""
    if not sign:
        return MASK
    name, found, secret = value.partition(sign)
    return f"{name}{found}{MASK}" if secret else MASK if found else value


def masked_line(line: str) -> str:
    """Return a word without its secrets, and a line up to its first one: what is behind may belong to it."""
    begin = _url_in(line)
    if not line[:begin].count(" "):
        line = line[:begin] + masked(line[begin:], store=_is_store(line[begin:]))
    for at, sign in enumerate(line):
        if sign in "=:" and is_secret_name(_name_before(line, at)) and line[at + 1 :].strip():
            start = len(line) - len(line[at + 1 :].lstrip())
            line = line[:start] + MASK
            break
    flat = line.translate(_BETWEEN)
    return _masked_pieces(line, flat.split(" ")) if " " in flat else line


def _masked_pieces(line: str, pieces: Sequence[str]) -> str:
    """Return a line up to its first secret. `pieces`: what is between blanks, which are as many as are in it."""
    found, at = [], 0
    for piece in pieces:
        bare = piece.lstrip(_QUOTES)
        start, at = at + len(piece) - len(bare), at + len(piece) + 1
        bare = bare if bare.startswith("-") else bare.rstrip(_QUOTES)
        if bare:
            found.append((start, bare))
    shown = masked_words([bare for _, bare in found])
    for (start, bare), word in zip(found, shown, strict=True):
        if word != bare:
            behind = line[start + len(bare) :]
            if word.endswith(MASK):
                behind = ""
            return line[:start] + word + (f" {MASK}" if behind.strip(_QUOTES) else behind)
    return line


def valid(text: str) -> str:
    r"""Return a text from the command line or the system as valid UTF-8, with other bytes escaped (`\xff`)."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def visible(text: str) -> str:
    """Return a text with its control characters escaped, so that a terminal cannot execute them.

    A name or a reason may come from another host, from a database that others write to, or from a variable. Escaped are
    C0, C1, line and paragraph separators, what changes the direction of a text, and invisible blanks.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )
