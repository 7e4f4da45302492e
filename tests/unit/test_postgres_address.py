"""Which parameters a connection to PostgreSQL gets besides those of its address."""

import pytest

from oncecron.stores.postgres import libpq
from oncecron.stores.postgres.address import parameters


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGREQUIREAUTH", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("address", "may_be_sent"),
    [
        ("", True),
        ("/d", True),
        ("u@/d?host=/run/postgresql", True),
        ("%2Frun%2Fpostgresql,%40abstract/d", True),
        ("%2Frun%2Fpostgresql,db.example.com/d", False),
        ("/d?hostaddr=192.0.2.1", False),
        ("db.example.com/d", False),
        ("db.example.com/d?sslmode=prefer", False),
        ("db.example.com/d?sslmode=disable", False),
        ("db.example.com/d?sslmode=require", True),
        ("db.example.com/d?sslmode=verify-ca", True),
        ("db.example.com/d?sslmode=verify-full", True),
        ("db.example.com/d?require_auth=password", True),
        ("db.example.com/d?require_auth=scram-sha-256", True),
    ],
)
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
