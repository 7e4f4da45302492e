"""The file that keeps libpq from a login, and the line that is missing in it."""

from pathlib import Path

import pytest

from oncecron.stores.postgres.login_files import cure_of

URL = "postgresql://u@h/d"
NONE = "fe_sendauth: no password supplied"


@pytest.mark.parametrize(
    ("settings", "where", "line"),
    [
        ({"host": "db", "port": "5433"}, 'at "db", port 5433', "db:5433:d:u:PASSWORD"),
        ({"host": "a,b", "port": "1,2"}, 'at "b", port 2', "b:2:d:u:PASSWORD"),
        ({"host": "a,b", "port": "1"}, 'at "b", port 1', "b:1:d:u:PASSWORD"),
        ({"host": "::1", "port": "1"}, 'at "::1", port 1', "\\:\\:1:1:d:u:PASSWORD"),
        ({"host": "/run", "port": "1"}, 'on socket "/run/.s.PGSQL.1"', "*:1:d:u:PASSWORD"),
        ({"hostaddr": "10.0.0.1"}, 'at "10.0.0.1", port 5432', "10.0.0.1:5432:d:u:PASSWORD"),
        ({}, 'on socket "/tmp/.s.PGSQL.5432"', "*:5432:d:u:PASSWORD"),
    ],
)
def test_the_line_that_is_missing(
    tmp_path: Path, settings: dict[str, str | None], where: str, line: str
) -> None:
    """That of the server which refused, with the signs escaped as libpq reads them."""
    known = {"dbname": "d", "user": "u", "passfile": str(tmp_path / "none"), **settings}
    cure = cure_of(f"connection to server {where} failed: {NONE}", URL, known, ())
    assert cure is not None
    assert f"add `{line}` to it (mode 600)" in cure


def test_a_failure_in_which_files_have_no_part() -> None:
    """The cure is another one."""
    assert cure_of("FATAL: no pg_hba.conf entry for host", URL, {}, ()) is None
    assert cure_of(NONE, URL, {}, ()) is None
