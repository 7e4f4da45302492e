"""The addresses of Redis stores: what they mean, what is wrong with them, and that no password is shown."""

from typing import Any

import pytest

from oncecron import stores
from oncecron.core import clock
from oncecron.core.errors import ConfigurationError
from oncecron.stores.address import parse_address
from oncecron.stores.redis.address import (
    DEFAULTS,
    PARAMETERS,
    Target,
    check_defaults,
    check_namespace,
    parse,
)

SECRET = "s3cret"


def read(text: str, **defaults: str) -> Target:
    """Read a store's text as the program does."""
    address = parse_address(text)
    assert (address.kind, address.target) == ("redis", text)
    assert address.lease_clock == clock.BOOTTIME
    return parse(address.target, tuple(defaults.items()))


def complaint(text: str, **defaults: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(text, **defaults)
    told = str(caught.value)
    assert "\n" not in told
    assert SECRET not in told
    return told


# Where and who


@pytest.mark.parametrize(
    ("text", "kind", "hosts"),
    [
        ("redis://h", "server", (("h", 6379),)),
        ("redis://h:7000", "server", (("h", 7000),)),
        ("redis://h/", "server", (("h", 6379),)),
        ("redis://[::1]", "server", (("::1", 6379),)),
        ("redis://u:p@[2001:db8::1]:7000/0", "server", (("2001:db8::1", 7000),)),
        ("valkey://h", "server", (("h", 6379),)),
        ("redis+sentinel://a,b:1,[::1]:2/m", "sentinel", (("a", 26379), ("b", 1), ("::1", 2))),
        ("valkey+sentinel://a/m", "sentinel", (("a", 26379),)),
        ("redis+cluster://a,b:1", "cluster", (("a", 6379), ("b", 1))),
        ("unix:///run/redis.sock", "socket", ()),
    ],
)
def test_where_the_server_is(text: str, kind: str, hosts: tuple[tuple[str, int], ...]) -> None:
    """With the ports that servers and sentinels listen on by themselves."""
    target = read(text)
    assert (target.kind, target.hosts, target.tls) == (kind, hosts, None)


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("redis://h", (None, None)), ("redis://u:p@h", ("u", "p")),
        ("redis://:p@h", (None, "p")), ("redis://u:@h", ("u", "")), ("redis://u:a:b@h", ("u", "a:b")),
        ("redis://%C3%A4:a%40b%2F%25+%3F%23@h", ("ä", "a@b/%+?#")),
        ("redis://h?username=u&password=a@b", ("u", "a@b")),
        ("redis://u@h?password=p", ("u", "p")),
        ("unix://u:p@/run/r.sock", ("u", "p")),
        ("redis+sentinel://u:p@a,b/m", ("u", "p")),
        ("redis+cluster://u:p@a,b", ("u", "p")),
    ],
)  # fmt: skip
def test_who_logs_in(text: str, who: tuple[str | None, str | None]) -> None:
    """Before the @ or as parameters, with %XX for what has a meaning there; a + is a +."""
    target = read(text)
    assert (target.username, target.password) == who


@pytest.mark.parametrize("text", [f"redis://{SECRET}@h", f"rediss+sentinel://{SECRET}@a,b/m"])
def test_a_password_without_its_colon_is_said_how_to_write(text: str) -> None:
    """It stands where the user does, and is not shown."""
    with pytest.raises(ConfigurationError, match="put a colon in front of it") as refused:
        read(text)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "database"),
    [
        ("redis://h", 0), ("redis://h/3", 3), ("redis://h?db=3", 3), ("unix:///run/r.sock?db=3", 3),
        ("redis+sentinel://a/m", 0), ("redis+sentinel://a/m/3", 3), ("redis+cluster://a", 0),
        ("redis+cluster://a/0", 0),
    ],
)  # fmt: skip
def test_which_database(text: str, database: int) -> None:
    """After the slash or as a parameter; by itself 0."""
    assert read(text).database == database


def test_a_sentinel_s_master_and_login() -> None:
    """Its own, because sentinels have users of their own."""
    target = read(
        f"redis+sentinel://a/my%20jobs?sentinel_username=s&sentinel_password={SECRET}&wait=1"
    )
    assert (target.master, target.wait) == ("my jobs", 1)
    assert (target.sentinel_username, target.sentinel_password) == ("s", SECRET)
    assert (target.username, target.password) == (None, None)


def test_a_socket_s_path() -> None:
    """With %XX."""
    assert read("unix:///run/a%20b%3F.sock").path == "/run/a b?.sock"


@pytest.mark.parametrize("scheme", ["rediss", "valkeys", "rediss+sentinel", "rediss+cluster"])
def test_tls_is_verified_by_itself(scheme: str) -> None:
    """Against the system's authorities; the name too."""
    tls = read(f"{scheme}://h/m" if "sentinel" in scheme else f"{scheme}://h").tls
    assert tls == (None, None, None, None, True, True)


def test_the_files_of_tls() -> None:
    """All of them by absolute path."""
    target = read(
        "rediss://h?ssl_ca_certs=/ca&ssl_certfile=/c&ssl_keyfile=/k&ssl_keyfile_password=p"
        "&ssl_cert_reqs=none&ssl_check_hostname=false"
    )
    assert target.tls == ("/ca", "/c", "/k", "p", False, False)


# Defaults


def test_the_url_wins_over_the_defaults() -> None:
    """Parameter by parameter."""
    defaults = {"username": "table", "password": "table", "wait": "2", "sentinel_password": "s"}
    target = read("redis://url@h?wait=1", **defaults)
    assert (target.username, target.password, target.wait) == ("url", "table", 1)
    assert target.sentinel_password is None
    assert read("redis+sentinel://h/m", **defaults).sentinel_password == "s"
    tls = read("rediss://h?ssl_ca_certs=/url", ssl_ca_certs="/table", ssl_cert_reqs="none").tls
    assert tls is not None
    assert (tls.ca_certs, tls.verify) == ("/url", False)


def test_certificates_without_tls_are_an_error_from_wherever_they_come() -> None:
    """Whoever gives them believes that the connection is encrypted."""
    assert "write rediss://" in complaint("redis://h", ssl_ca_certs="/ca")
    assert "write rediss://" in complaint("unix:///s?ssl_cert_reqs=none")


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"db": "1"}, "unknown key 'db'"),
        ({"ssl_ca_cert": "/x"}, "unknown key 'ssl_ca_cert'"),
        ({"ssl_ca_certs": "ca.crt"}, "must be absolute"),
        ({"ssl_cert_reqs": "optional"}, "use required or none"),
        ({"ssl_check_hostname": "1"}, "use true or false"),
        ({"wait": "-1"}, "not a whole number from 0 to"),
    ],
)
def test_a_wrong_default_is_known_before_there_is_a_url(table: dict[str, str], told: str) -> None:
    """As the configuration file is read."""
    with pytest.raises(ValueError, match=told):
        check_defaults(table)


def test_every_default_may_stand_in_a_url_as_well() -> None:
    """And of the parameters only the database belongs to the URL alone."""
    assert set(PARAMETERS) - set(DEFAULTS) == {"db"}


# What is wrong


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("redis:h", "write redis://"), ("redis-sentinel://h/m", "write redis+sentinel://"),
        ("redis+tls://h", "write rediss://"), ("redis+unix:///s", "write unix://"),
        ("redis+asyncio://h", "unknown kind 'redis+asyncio'"), ("redis://", "the host is missing"),
        (f"redis://:{SECRET}@", "the host is missing"), ("redis://a b", "invalid host"),
        ("redis://" + "ä" * 64, "invalid host"), ("redis://::1", "in brackets"),
        ("redis://[::1", "[ADDRESS]:PORT"), ("redis://h:x", "the port"), ("redis://h:65536", "the port"),
        ("redis://h:0", "invalid port 0"),
        ("redis://a,b", "redis+sentinel://HOST,HOST/NAME or redis+cluster://HOST,HOST"),
        ("redis+cluster://a,,b", "the host is missing"), ("redis://h/x", "the database"),
        ("redis://h/²", "the database"), ("redis://h/0/1", "more than a database number"),
        ("redis://h/1?db=1", "the database is given twice"), ("redis+cluster://h/1", "database 0 only"),
        ("redis+sentinel://h", "the master's name is missing"), ("unix://run/redis.sock", "three slashes"),
        ("unix://", "the socket's path is missing"), ("unix:///" + "a" * 107, "longer than 107 bytes"),
        ("redis://h?foo=1", "unknown parameter 'foo'; known parameters: db, keep, password"),
        ("redis://h?wait", "unknown parameter 'wait'"), ("redis://h?", "ok"),
        ("redis://h?wait=x", "wait: 'x' is not a whole number"),
        ("redis://h?wait=1&wait=1", "wait is given twice"),
        (f"redis://u:{SECRET}@h?password=x", "password is given twice"),
        (f"redis://h?sentinel_password={SECRET}", "is only for redis+sentinel://"),
        ("rediss://h?ssl_ca_certs=ca.crt", "must be absolute"),
        ("rediss://h?ssl_keyfile=/k", "needs ssl_certfile"), ("redis://h%zz", "%25"), ("redis://u%00@h", "%00"),
        ("redis://h#x", "%23"), (f"redis://u:{SECRET}#x@h", "%23"), (f"redis://u:{SECRET}/x@h", "%2F"),
        (f"redis://u:1/{SECRET}@h", "%2F"), (f"redis://u:{SECRET}?x@h", "%3F"),
        (f"redis://u:1?{SECRET}@h", "%3F"), (f"redis://:1?{SECRET}=@h", "%3F"),
        (f"redis://u:x@{SECRET}@h", "%40"), ("sqlite:///a", "is not a Redis store"),
    ],
)  # fmt: skip
def test_what_is_no_redis_store(text: str, told: str) -> None:
    """The sentence says what to write instead, and never the password."""
    if told == "ok":
        assert read(text).hosts == (("h", 6379),)
    else:
        with pytest.raises(ConfigurationError) as caught:
            parse(text)
        line = str(caught.value)
        assert told in line
        assert "\n" not in line
        assert SECRET not in line


@pytest.mark.parametrize("namespace", ["", "a b", "a:b", "{a}", "ä", "a" * 64, "a*"])
def test_a_namespace_that_cannot_begin_a_key(namespace: str) -> None:
    """It would be a pattern, a hash tag, or unreadable."""
    with pytest.raises(ConfigurationError, match="1 to 63 characters of"):
        check_namespace(namespace)
    with pytest.raises(ConfigurationError):
        stores.check_namespace(parse_address("redis://h"), namespace)


@pytest.mark.parametrize("namespace", ["oncecron", "a", "A.b_c-9", "a" * 63])
def test_a_namespace_that_can(namespace: str) -> None:
    """Also what other stores take for theirs."""
    stores.check_namespace(parse_address("redis://h"), namespace)
    stores.check_namespace(parse_address("sqlite:///a"), namespace + ":")


# Passwords


@pytest.mark.parametrize(
    "text", [f"redis://u:{SECRET}@h", f"rediss://h?ssl_keyfile_password={SECRET}"]
)
def test_a_target_shows_no_password(text: str) -> None:
    """Not as a text, nor where somebody prints it to look at it."""
    target: Any = text
    try:
        target = parse(text)
    except ConfigurationError as error:
        target = error
    assert SECRET not in f"{target!r} {target}"
