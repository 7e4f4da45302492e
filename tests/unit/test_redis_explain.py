"""What an error of Redis is: known by its code and by what it answers, in whatever words."""

import pytest

from oncecron.core.errors import (
    RecordRefusedError,
    StoreError,
    StoreRefusesError,
    StoreUnavailable,
)
from oncecron.stores.redis import explain
from oncecron.stores.redis.address import parse
from oncecron.stores.redis.resp import ReplyError

TARGET = parse("redis://h", {})
OF_SCRIPT = "ERR Error running script (call to f_0): @user_script:3: @user_script: 3: {}"


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        ("OOM kein Speicher", StoreUnavailable, "memory is full"),
        (OF_SCRIPT.format("-OOM x"), StoreUnavailable, "memory is full"),
        ("MISCONF zzz", StoreUnavailable, "to disk"),
        ("READONLY zzz", StoreUnavailable, "become a replica"),
        ("UNBLOCKED zzz", StoreUnavailable, "become a replica"),
        ("NOREPLICAS zzz", StoreUnavailable, "too few replicas"),
        ("WRONGTYPE zzz", StoreRefusesError, "choose another --namespace"),
        (OF_SCRIPT.format("-WRONGTYPE zzz"), StoreRefusesError, "choose another --namespace"),
        ("CROSSSLOT zzz", StoreRefusesError, "write redis+cluster://"),
        ("NOPERM zzz", StoreRefusesError, "ACL SETUSER"),
        ("ERR unbekannter Befehl 'EVAL'", StoreRefusesError, "with EVAL and EVALSHA allowed"),
        ("ERR command eval not support for your account", StoreRefusesError, "EVAL and EVALSHA"),
        ("ERR This Redis command is not allowed from script", StoreRefusesError, "6.2 or newer"),
        ("upstream failure", StoreRefusesError, "6.2 or newer"),
        ("", StoreRefusesError, "6.2 or newer"),
        (
            "ERR user_script:3: attempt to perform arithmetic on a nil value",
            RecordRefusedError,
            "correct it in the store",
        ),
    ],
)
def test_an_answer_to_a_script(answer: str, kind: type[StoreError], told: str) -> None:
    """A server that answers is not away, unless the code says that it may do so later."""
    error = explain.of_step(ReplyError(answer), TARGET, "oncecron")
    assert type(error) is kind
    assert told in str(error)


@pytest.mark.parametrize("code", ["LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN"])
def test_a_server_that_is_not_ready(code: str) -> None:
    """Wherever it says so."""
    said = ReplyError(f"{code} zzz")
    for error in (
        explain.of_command(said, "here"),
        explain.of_handshake("AUTH", said, "here", "", "cron"),
        explain.of_sentinel(said, "here", "default"),
    ):
        assert type(error) is StoreUnavailable
    assert not explain.is_harmless("CLIENT", said, "default")


@pytest.mark.parametrize(
    ("verb", "answer", "told"),
    [
        ("AUTH", "WRONGPASS falsch", "check username and password"),
        ("AUTH", "ERR falsch", "check username and password"),
        ("AUTH", "NOPERM falsch", "ACL SETUSER cron +auth"),
        ("SELECT", "ERR falsch", "choose another database"),
        ("SELECT", "NOPERM falsch", "ACL SETUSER cron +select"),
        ("CLIENT", "NOAUTH falsch", "give username and password"),
    ],
)
def test_a_handshake_that_is_refused(verb: str, answer: str, told: str) -> None:
    """For good."""
    error = explain.of_handshake(verb, ReplyError(answer), "here", "", "cron")
    assert type(error) is StoreRefusesError
    assert told in str(error)


@pytest.mark.parametrize(
    ("verb", "answer", "user", "harmless"),
    [
        ("AUTH", "ERR no password is set", "default", True),
        ("AUTH", "ERR no password is set", "cron", False),
        ("AUTH", "WRONGPASS", "default", False),
        ("SELECT", "ERR", "default", False),
        ("CLIENT", "ERR unknown command", "cron", True),
        ("CLIENT", "NOPERM", "cron", True),
        ("CLIENT", "NOAUTH", "cron", False),
        ("CLIENT", "DENIED", "cron", False),
    ],
)
def test_a_refusal_that_does_no_harm(verb: str, answer: str, user: str, harmless: bool) -> None:
    """The next answer tells whether it does."""
    assert explain.is_harmless(verb, ReplyError(answer), user) is harmless


def test_a_server_that_hangs_up() -> None:
    """It is full, unless it says that it will never let anybody in."""
    assert type(explain.turned_away(ReplyError("ERR voll"), "here")) is StoreUnavailable
    assert type(explain.turned_away(ReplyError("DENIED zzz"), "here")) is StoreRefusesError
