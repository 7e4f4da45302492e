"""Which parameters a connection to PostgreSQL gets besides those of its address."""

import pytest

from oncecron.core.errors import ConfigurationError
from oncecron.stores.address import parse_address
from oncecron.stores.postgres import libpq
from oncecron.stores.postgres.address import parameters


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGREQUIREAUTH", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("address", "may_be_sent"),
    [
        ("", True), ("/d", True), ("u@/d?host=/run/postgresql", True),
        ("%2Frun%2Fpostgresql,%40abstract/d", True), ("%2Frun%2Fpostgresql,db.example.com/d", False),
        ("/d?hostaddr=192.0.2.1", False), ("db.example.com/d", False),
        ("db.example.com/d?sslmode=prefer", False), ("db.example.com/d?sslmode=disable", False),
        ("db.example.com/d?sslmode=require", True), ("db.example.com/d?sslmode=verify-ca", True),
        ("db.example.com/d?sslmode=verify-full", True), ("db.example.com/d?require_auth=password", True),
        ("db.example.com/d?require_auth=scram-sha-256", True),
    ],
)  # fmt: skip
def test_when_a_password_may_be_sent_in_clear(address: str, may_be_sent: bool) -> None:
    """Over a Unix socket, over TLS that the address requires, or where `require_auth` decides already."""
    settings = libpq.settings(f"postgresql://{address}")
    assert ("require_auth" not in parameters(5, "oncecron", settings)) == may_be_sent


def test_an_old_libpq() -> None:
    """Before version 16 it would refuse a parameter that it does not know."""
    settings = libpq.settings("postgresql://db.example.com/d")
    del settings["require_auth"]
    assert "require_auth" not in parameters(5, "oncecron", settings)


def test_a_url_that_libpq_cannot_read_has_no_settings() -> None:
    """Connecting says why."""
    assert not any(libpq.settings("postgresql://h/d?nonsense=1").values())


@pytest.mark.parametrize(
    ("text", "target", "hold"),
    [
        ("postgresql://h/d", "postgresql://h/d", "auto"),
        ("postgresql://h/d?hold=no", "postgresql://h/d", "no"),
        ("postgres://h?sslmode=require&hold=yes", "postgres://h?sslmode=require", "yes"),
        ("postgresql://a,b/d?hold=no&host=/run", "postgresql://a,b/d?host=/run", "no"),
        ("postgresql:///d?hold=no&hold=auto", "postgresql:///d", "auto"),
        ("postgresql://u:p%3Fhold=no@h/d", "postgresql://u:p%3Fhold=no@h/d", "auto"),
        ("postgresql://h/d?holding=no", "postgresql://h/d?holding=no", "auto"),
    ],
)
def test_hold_is_taken_out_of_the_address(text: str, target: str, hold: str) -> None:
    """It would be an unknown parameter to libpq, which gets all others as they are."""
    address = parse_address(text)
    assert (address.target, address.hold) == (target, hold)


@pytest.mark.parametrize("value", ["", "NO", "never", "no%20", "0"])
def test_another_value_of_hold_is_refused(value: str) -> None:
    """With the values that there are, and without the password."""
    with pytest.raises(ConfigurationError, match=r"use yes, no or auto") as caught:
        parse_address(f"postgresql://u:s3cret@h/d?hold={value}")
    assert "s3cret" not in str(caught.value)
