"""Mask secrets, in addresses, in commands and in messages: `***` stands for what may be a password.

    address     of a store, or a URL: an address that cannot be read is hidden rather than shown. A password of only
                digits in place of a port, or one in place of a user name, cannot be told from what it looks like
    command     NAME=VALUE and NAME: VALUE whose name says that it is a secret, --NAME VALUE, a password in a URL, the
                log-in options of known programs. A masked value ends where its word ends. The string of `sh -c` is
                divided as a shell divides it
    message     a URL in it, whatever somebody mistyped

Any other secret of a command (`login hunter2`) is not found: `--record-command program` records no arguments.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MASK = "***"

# Names

_ENDS = (
    *("password", "passwd", "passphrase", "passwort", "secret", "token", "apikey", "accesskey"),
    *("privatekey", "secretkey", "authkey", "credential", "pwd", "pass", "passwrd", "pasword"),
)
_PARTS = frozenset(
    (
        "pw", "psw", "psk", "auth", "authorization", "bearer", "cookie", "cred", "jwt", "passin", "passout", "sig",
    )
)  # fmt: skip
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


def without_urls(message: str) -> str:
    """Return a message without the secrets of the URLs that it quotes: a value in the place of another one."""
    for quote in "'\"":
        first, *others = message.split(f"{quote}http")
        for other in others:
            url, _, behind = f"http{other}".partition(quote)
            first += f"{quote}{shown_url(url)}{quote}{behind}"
        message = first
    return message


def _spans_in_word(word: str) -> list[tuple[int, int]]:
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
    hidden.append(login_secret(address))
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
        return _merged([*_in_words(text)])
    scheme = text[:begin].partition(":")[0].rstrip("/").lower().partition("+")[0]
    end = next((at for at in range(begin, len(text)) if text[at] in "/?#"), len(text))
    query = text.find("?", end)
    path = text[end : query if query >= 0 else len(text)]
    login, at, hosts = text[begin:end].rpartition("@")
    if scheme in _FILES and text[:begin].endswith("///") and ":" not in text[begin:end]:
        path = login = hosts = at = ""  # a path of a file may contain any sign
    behind = text[query + 1 :] if query >= 0 else ""
    is_cut = "@" in behind and not all(map(_is_parameter, behind.split("&")))
    if not _are_hosts(hosts) or (store and ("@" in login + path or is_cut)):
        return [(begin, len(text))]
    found = []
    user, colon, _ = login.partition(":")
    if at and (colon or scheme in ("http", "https") or _NOT_IN_A_USER.intersection(user)):
        found.append((begin + len(user) + 1 if colon else begin, begin + len(login)))
    found += _in_web_hook(text, begin)
    if query >= 0:
        found += _in_parameters(text, query + 1, store and scheme != "sqlite")
    return _merged(found)


def _in_words(text: str) -> Iterator[tuple[int, int]]:
    at = text.find("=")
    while at >= 0 and _name_before(text, at) in _SHOWN:
        at = text.find("=", at + 1)
    if at >= 0:
        yield at + 1 + (text[at + 1 : at + 2] == " "), len(text)
    if ":" in text or "@" in text:
        yield text.find(":") + 1, len(text)


def _in_web_hook(text: str, begin: int) -> Iterator[tuple[int, int]]:
    for place in _WEB_HOOKS:
        at = text.find(place, begin)
        if begin and at >= 0:
            yield at + len(place), at + len(text[at:].partition("?")[0].partition("#")[0])


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


def _after_scheme(text: str) -> int:
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
    for host in text.split(","):
        if host.startswith("["):
            host = host.partition("]")[2]  # noqa: PLW2901 - the address is left out
        name, _, port = host.partition(":")
        if _NOT_IN_A_USER.intersection(name) or not (port.isdigit() or not port):
            return False
    return True


def _is_parameter(piece: str) -> bool:
    name, equals, _ = piece.partition("=")
    return name in _SHOWN or (equals != "" and is_secret_name(name) and _NAME.issuperset(name))


def _in_parameters(text: str, start: int, store: bool) -> Iterator[tuple[int, int]]:
    """Yield the secret values of a query; all that is behind one if that is no parameter, but perhaps a part of it."""
    hidden: tuple[int, int] | None = None
    for piece in text[start:].split("&"):
        name, equals, _ = piece.partition("=")
        value = start + len(name) + 1 if equals and _NAME.issuperset(name) else start
        if (store and not _is_parameter(piece)) or (hidden and not store):
            yield hidden[0] if hidden else value, len(text)
            return
        if hidden:
            yield hidden
        end = start + len(piece)
        hidden = (value, end) if value > start and is_secret_name(name) else None
        start = end + 1
    if hidden:
        yield hidden


# Commands


class _Options(NamedTuple):
    secrets: Mapping[str, str]
    """Options whose value has one: the sign that is in front of it in the value, empty if all of it is secret."""
    others: str = ""
    """The letters of other options with a value, such as the `o` in `-so FILE`. No option is behind them."""
    apart: bool = True
    """Whether the value may be the next word: not that of `mysql -p`, which is a database."""


_PASSWORD_OF_MYSQL = _Options({"-p": ""}, "DehPSTru", apart=False)
_LOGIN_OF_SAMBA = _Options({"-U": "%", "--user": "%"}, "ADIMNRTWbcdilmnops")
_PROGRAMS = {
    "curl": _Options(
        {
            **dict.fromkeys(("-u", "-U", "-E", "--user", "--proxy-user", "--cert", "--proxy-cert"), ":"),
            "-b": "=",
        },
        "ACDFHKPQTXYcdehmortwxyz",
    ),
    **dict.fromkeys(("http", "https", "xh"), _Options({"-a": ":"}, "Aops")),
    **dict.fromkeys(("redis-cli", "valkey-cli", "keydb-cli"), _Options({"-a": ""}, "DXdhinprstu")),
    **dict.fromkeys(("xtrabackup", "innobackupex"), _PASSWORD_OF_MYSQL),
    **dict.fromkeys(("smbclient", "smbget", "smbcacls", "rpcclient"), _LOGIN_OF_SAMBA),
    **dict.fromkeys(("7z", "7za", "7zr", "rar", "unrar"), _Options({"-p": ""}, "aimorstuvwx", apart=False)),
    **dict.fromkeys(("zip", "unzip"), _Options({"-P": ""}, "bdintx")),
    **dict.fromkeys(("sqlcmd", "bcp", "tsql"), _Options({"-P": ""}, "DHSUbcdefhikorstw")),
    **dict.fromkeys(("sshpass", "cqlsh", "login"), _Options({"-p": ""}, "Pdfu")),  # `docker login`, `az login`
    "lftp": _Options({"-u": ","}, "efp"),
    "ipmitool": _Options({"-P": ""}, "ACHIKLNRSUfgkopty"),
    "ldappasswd": _Options({"-w": "", "-a": "", "-s": ""}, "DHhpy"),
}  # fmt: skip
_FAMILIES = {
    "mysql": _PASSWORD_OF_MYSQL,
    "maria": _PASSWORD_OF_MYSQL,
    "mongo": _Options({"-p": ""}, "cdfhjkoqu"),
    "ldap": _Options({"-w": ""}, "DEFHPRSTUXYZabdefhlopsyz"),
    "snmp": _Options({"-c": "", "-A": "", "-X": ""}, "CDEILMNOPalmnrtuvx"),
    "ncftp": _Options({"-p": ""}, "PRSWdru"),
    "mosquitto_": _Options({"-P": ""}, "ALMUVWhiklmnopqtux"),
}
"""The same by how the names of their programs begin."""
_MARKS = (
    *("pass", "pwd", "pw", "psw", "psk", "secret", "token", "key", "cred", "auth", "cookie", "jwt", "bearer"),
    *("pasword", "://", *_PROGRAMS, *_FAMILIES, *_MISTYPED),
)  # fmt: skip
"""A command without one of these has no secret that is looked for."""
_BEFORE_A_NAME = ("-u", "--user", "--name")  # `sudo -u mysql`, `docker run --name mysql`
_BEFORE_A_LINE = ("--shell", "--command", "eval")
_SIGNS = " \t\n;&|<>()"
_DEEPEST, _LONGEST = 5, 20_000
"""How deep command lines may nest, and how long a line may be, to be divided; beyond that, all is hidden."""


def masked_words(words: Sequence[str], depth: int = 0) -> list[str]:
    """Return the words of one command, or of a wrapper and the command it starts, without their secrets."""
    shown: list[str] = []
    before, program, sign = "", None, None
    for word in words:
        if before not in _BEFORE_A_NAME:
            program = _program_of(word) or program
        if before[1:] and before[0] == "-" and "=" not in before and is_secret_name(before):
            masked_word, sign = MASK, None
        elif sign is not None:
            masked_word, sign = _without_value(word, sign), None
        else:
            masked_word, sign = _masked_option(word, program) if program else (word, None)
            if masked_word == word:
                masked_word = _masked_word(word, before, depth)
        shown.append(masked_word)
        before = word
    return shown


def _program_of(word: str) -> _Options | None:
    directory, _, name = word.rpartition("/")
    if directory[-3:] not in ("", "bin"):
        return None
    if name in _PROGRAMS or not name.replace("-", "").replace("_", "").isalpha():
        return _PROGRAMS.get(name)
    return next((of for begin, of in _FAMILIES.items() if name.startswith(begin)), None)


def _masked_option(word: str, program: _Options) -> tuple[str, str | None]:
    """Return a word of a program without the secret in it, and the sign in front of one in the next word, if any.

    Single letters stand for themselves or in a cluster, the last one with its value behind it or in the next word.
    """
    name, equals, value = word.partition("=")
    sign = program.secrets.get(name) if word[:2] == "--" else None
    if sign is not None:
        return (f"{name}={_without_value(value, sign)}", None) if equals else (word, sign)
    for at in range(1, len(word) if word[:1] == "-" != word[1:2] else 0):
        sign = program.secrets.get(f"-{word[at]}")
        if sign is not None:
            value = word[at + 1 :]
            shown = word[: at + 1] + _without_value(value, sign)
            return (shown, None) if value else (word, sign if program.apart else None)
        if word[at] in program.others:
            break
    return word, None


def _without_value(value: str, sign: str) -> str:
    """Return the value of an option without the secret behind a sign; all of it is hidden if nothing is behind it."""
    if not sign:
        return MASK
    name, found, secret = value.partition(sign)
    return f"{name}{found}{MASK}" if secret else MASK if found else value


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
        words = [word.strip("'\"\\(){}$`") for word in line.split(" ")]
        return line if masked_words(words, depth + 1) == words else MASK
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


def _masked_word(word: str, before: str, depth: int) -> str:
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


def _without_values(word: str) -> str:
    """Return a word without the passwords of a URL, and up to the first value of a name that says it is a secret."""
    spans = _spans_in_word(word)
    for at in (at for at, sign in enumerate(word) if sign in "=:"):
        if is_secret_name(_name_before(word, at)) and (value := word[at + 1 :].strip()):
            spans.append((word.index(value, at + 1), len(word)))
            break
    return _with_mask(word, _merged(spans))


def _with_mask(text: str, spans: list[tuple[int, int]]) -> str:
    shown, done = "", 0
    for start, end in spans:
        shown, done = shown + text[done:start] + MASK, end
    return shown + text[done:]
