"""Find and mask the secrets in a command: one rule for what is recorded, for messages and for `crontab lint`.

A secret is the value of a variable, an option, a header or a parameter whose name says so, the password in a URL, and
the value of a short option of a program that is known for it (`mysql -pSECRET`, `curl -u USER:SECRET`). A masked value
ends where its word ends: it is better to hide too much of a word than to show the end of a password with blanks or
signs in it. A word that is a command line itself, such as the string of `sh -c`, is divided as a shell divides it.

A secret without such a name (`login hunter2`) is not found. `oncecron run` imports this module only for a command that
`may_hold_secret`, and it does not import `re`.
"""

from __future__ import annotations

from oncecron.core.light_typing import TYPE_CHECKING, NamedTuple
from oncecron.core.secrets import (
    MASK,
    hidden_in_url,
    in_web_hook,
    is_secret_name,
    may_hold_secret,
    name_before,
)
from oncecron.core.shell_words import (
    BLANK,
    COMMENT,
    OPERATOR,
    REDIRECTION,
    WORD,
    UnclosedError,
    quoted,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Secret(NamedTuple):
    """Where a secret is in the words of a command."""

    place: str
    """What it belongs to, for messages."""
    word: int
    start: int
    end: int
    sure: bool = True
    """False: only likely, so it is hidden but not reported."""


class _Login(NamedTuple):
    """The short options of a program whose value is a login."""

    letters: str
    user_before: str = ""
    """The sign between a user and the secret; empty: the whole value is secret."""
    attached: bool = False
    """The value is always a part of the word, as in `-pSECRET`."""


_MYSQL, _MONGO, _LDAP = _Login("p", attached=True), _Login("p"), _Login("w")
_HTTP = _Login("a", ":")
_PROGRAMS = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mysqlcheck", "mysqlimport"), _MYSQL),
    **dict.fromkeys(("mysqlshow", "mysqlbinlog", "mariadb", "mariadb-dump"), _MYSQL),
    **dict.fromkeys(("mariadb-admin", "mariadb-check", "xtrabackup", "mariabackup"), _MYSQL),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "mongorestore", "mongoexport"), _MONGO),
    **dict.fromkeys(("ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldapwhoami"), _LDAP),
    **dict.fromkeys(("redis-cli", "valkey-cli"), _Login("a")),
    **dict.fromkeys(("7z", "7za", "7zr"), _Login("p", attached=True)),
    **dict.fromkeys(("zip", "unzip", "sqlcmd", "bcp", "ipmitool"), _Login("P")),
    **dict.fromkeys(("mosquitto_pub", "mosquitto_sub"), _Login("P")),
    **dict.fromkeys(("snmpget", "snmpwalk", "snmpset"), _Login("cAX")),
    **dict.fromkeys(("http", "https", "xh"), _HTTP),
    **dict.fromkeys(("docker", "podman", "buildah", "skopeo", "helm"), _Login("p")),
    **dict.fromkeys(("sqlplus", "exp", "imp", "expdp", "impdp", "sqlldr"), _Login("")),
    "ab": _Login("A", ":"),
    "curl": _Login("uUb", ":"),
    "find": _Login(""),  # because `find /var/lib/mysql -print` does not start mysql
    "lftp": _Login("u", ","),
    "openssl": _Login("kK"),
    "smbclient": _Login("U", "%"),
    "sshpass": _Login("p"),
}
_ONLY_LOGIN = frozenset(("docker", "podman", "buildah", "skopeo", "helm"))
_ORACLE = frozenset(("sqlplus", "exp", "imp", "expdp", "impdp", "sqlldr"))
_LONG_LOGINS = frozenset(("--user", "--proxy-user"))  # of curl
_BEFORE_A_NAME = frozenset(("-u", "--user", "--name"))  # `sudo -u mysql`, `docker run --name mysql`
_BEFORE_A_PROGRAM = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_BEFORE_A_LINE = frozenset(("--shell", "--command", "eval"))
_HEADERS = ("authorization", "cookie")
_AUTHORIZATIONS = frozenset(("bearer", "basic", "token"))

_DEEPEST, _LONGEST = 5, 20_000
"""How deep command lines may nest, and how long a word may be, to be divided; beyond that, all is hidden."""


def masked_words(words: Sequence[str], depth: int = 0) -> list[str]:
    """Return the words of one command, or of a wrapper and the command it starts, without their secrets."""
    found = list(secrets_in(words))
    return [
        _masked(word, [each for each in found if each.word == number], depth)
        if not _is_line(words, number)
        else masked_line(word, depth + 1)
        for number, word in enumerate(words)
    ]


def _masked(word: str, secrets: list[Secret], depth: int) -> str:
    shown, done = "", 0
    for secret in sorted(secrets, key=lambda each: each.start):
        if secret.end > done:
            shown += word[done : secret.start] + (MASK if secret.start >= done else "")
            done = secret.end
    shown += word[done:]
    if "$(" in shown or "`" in shown:
        return _with_substitutions(shown, depth)
    return masked_line(shown, depth + 1) if any(sign in shown for sign in " \t\n;&|") else shown


def _with_substitutions(word: str, depth: int) -> str:
    """Return a word whose substitutions are masked as command lines."""
    signs = ("$(", "`", ")")
    for sign in signs:
        word = word.replace(sign, f"\0{sign}\0")
    return "".join(
        piece if piece in signs else masked_line(piece, depth + 1) for piece in word.split("\0")
    )


def masked_line(line: str, depth: int = 0) -> str:
    """Return a command line without its secrets; a word that has one is quoted anew."""
    if not may_hold_secret(line):
        return line
    if depth > _DEEPEST or len(line) > _LONGEST:
        return MASK
    try:
        found = tokens(line.encode("utf-8", "surrogateescape"))
    except UnclosedError:
        return _masked_crudely(line)
    texts = [token.text.decode("utf-8", "surrogateescape") for token in found]
    values = [token.value.decode("utf-8", "surrogateescape") for token in found]
    start = 0
    for end in [*(at for at, token in enumerate(found) if token.kind == OPERATOR), len(found)]:
        places = [at for at in range(start, end) if found[at].kind == WORD]
        words = [values[at] for at in places]
        for at, word, shown in zip(places, words, masked_words(words, depth), strict=True):
            if shown != word:
                texts[at] = _written(shown)
        start = end
    for at, token in enumerate(found):
        if token.kind == COMMENT:
            texts[at] = "#" + masked_line(texts[at][1:], depth + 1)
        if token.kind == REDIRECTION and token.value == b"<<<":
            target = at + 1 + (found[at + 1 : at + 2] != [] and found[at + 1].kind == BLANK)
            texts[target : target + 1] = [MASK]
    return "".join(texts)


def _written(word: str) -> str:
    plain = word.replace(MASK, "x")
    if any(sign in plain for sign in "$`") and "'" not in plain:
        return f'"{word}"' if any(sign in plain for sign in " \t\n;&|<>") else word
    text = plain.encode("utf-8", "surrogateescape")
    if quoted(text) == text:
        return word
    return quoted(word.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _masked_crudely(line: str) -> str:
    """Return a line whose quotes are open up to its first secret."""
    words = line.split(" ")
    first = next(secrets_in([word.strip("'\"\\(){}$`") for word in words]), None)
    if first is None:
        return line
    return " ".join([*words[: first.word], MASK])


def _is_line(words: Sequence[str], number: int) -> bool:
    """Return whether a word is a command line: behind `-c`, `-lc`, `--shell`."""
    if not number or not any(sign in words[number] for sign in " \t\n;&|<>()"):
        return False
    before = words[number - 1]
    short = before[:1] == "-" and before[1:].isalpha() and before.endswith("c")
    return short or before in _BEFORE_A_LINE


# Within one command


def secrets_in(words: Sequence[str]) -> Iterator[Secret]:
    """Yield the secrets in the words of one command, not those of command lines within a word."""
    program, before, second, open_url = "", "", "", False
    for number, word in enumerate(words):
        if open_url and (at := word.rfind("@")) >= 0:
            yield Secret("the password in an address", number, 0, at, sure=False)
            open_url = False
        if number and _starts(word, before, program):
            program = word.rpartition("/")[2]
        elif not number:
            program = word.rpartition("/")[2] if _starts(word, "", "") else ""
        if not _is_line(words, number):
            for found in _in_word(word, number):
                yield found
                open_url |= _is_cut_url(word, found, words[number + 1 :])
        if (
            before[:1] == "-" and "=" not in before and is_secret_name(before) and before[1:2]
        ) or _in_sql(before, second):
            yield Secret(before, number, 0, len(word), sure=before[:1] == "-")
        yield from _in_options(words, number, program)
        before, second = word, before


def _starts(word: str, before: str, program: str) -> bool:
    """Return whether a word is the known program, whatever starts it: nice, sudo, oncecron."""
    directory, _, name = word.rpartition("/")
    if name not in _PROGRAMS or before in _BEFORE_A_NAME:
        return False
    if directory and not directory.endswith("bin"):
        return False
    return not program or before in _BEFORE_A_PROGRAM


def _in_sql(before: str, second: str) -> bool:
    return before.lower() == "password" or (
        before.lower() == "by" and second.lower() == "identified"
    )


def _is_cut_url(word: str, found: Secret, following: Sequence[str]) -> bool:
    """Return whether a blank in the password has cut a URL in two."""
    cut = "://" in word and found.end == len(word) and "@" not in word
    return cut and any("@" in each for each in following[:3])


def _in_word(word: str, number: int) -> Iterator[Secret]:
    for start, end in hidden_in_url(word):
        hook = in_web_hook(word[:start])
        place = "the address of a web hook" if hook else "the password in an address"
        yield Secret(place, number, start, end, sure=hook or "@" in word[end:])
    for at, sign in enumerate(word):
        if sign not in "=:" or at + 1 == len(word):
            continue
        name = name_before(word, at)
        if not is_secret_name(name) and not (sign == "=" and _is_key_variable(name)):
            continue
        start = at + 1
        while word[start : start + 1] == " ":
            start += 1
        if start == len(word):
            continue
        header = name.lower().endswith(_HEADERS)
        kind, blank, rest = word[start:].partition(" ")
        if header and rest and kind.lower() in _AUTHORIZATIONS:
            start += len(kind + blank)
        place = f"the {name} header" if header else word[:at] if name in word[:at] else name
        yield Secret(
            place, number, start, len(word), sure=header or (sign == "=" and is_secret_name(name))
        )
        return


def _is_key_variable(name: str) -> bool:
    return (
        name.isupper()
        and name.endswith("_KEY")
        and not name.endswith(("ONCECRON_KEY", "PUBLIC_KEY"))
    )


def _in_options(words: Sequence[str], number: int, program: str) -> Iterator[Secret]:
    """Yield the secret of a short option of a known program."""
    login, word = _PROGRAMS.get(program), words[number]
    if login is None or (program in _ONLY_LOGIN and "login" not in words):
        return
    if program in _ORACLE and word[:1] not in ("-", "/", "@") and word.find("/") > 0:
        yield Secret("the login", number, word.find("/") + 1, _end_of_login(word), sure=False)
    value = _value_of(words, number, login, program)
    if value is None:
        return
    place, at, start = value
    if login.user_before and place != "-b":
        sign = words[at].find(login.user_before, start)
        if sign < 0:
            return
        start = sign + 1
    if start < len(words[at]):
        yield Secret(place, at, start, len(words[at]))


def _end_of_login(word: str) -> int:
    at = word.rfind("@")
    return at if at > word.find("/") else len(word)


def _value_of(
    words: Sequence[str], number: int, login: _Login, program: str
) -> tuple[str, int, int] | None:
    """Return an option, the word with its value, and where that begins there."""
    word = words[number]
    if program == "curl" and word.startswith("--"):
        name, equals, _ = word.partition("=")
        if name not in _LONG_LOGINS:
            return None
        return (name, number, len(name) + 1) if equals else _following(words, number, name)
    for at, letter in enumerate(word):
        if at and letter in login.letters and word[0] == "-" and word[1] != "-":
            option = f"-{letter}"
            if at + 1 < len(word):
                return option, number, at + 1
            return None if login.attached else _following(words, number, option)
        if at and (program != "curl" or not letter.isalpha()):
            return None
    return None


def _following(words: Sequence[str], number: int, option: str) -> tuple[str, int, int] | None:
    return (option, number + 1, 0) if number + 1 < len(words) else None
