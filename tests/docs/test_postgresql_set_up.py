"""There is one way to set up PostgreSQL, and doing a step again changes nothing."""

import re

from documents import README, ROOT
from servers import PostgresServer
from snippet_machine import FIRING, OWNER, empty_postgres_machine
from snippet_source import blocks_of

from oncecron.cli import init

PAGE = ROOT / "docs" / "stores" / "postgresql.md"
TEXT = PAGE.read_text(encoding="utf-8")
STEPS = [
    block
    for block in blocks_of(PAGE, TEXT.split("### From one role to two", maxsplit=1)[0])
    if block.language in ("sh", "console")
]


def test_the_readme_has_the_steps_of_the_page() -> None:
    """Word by word."""
    text = README.read_text(encoding="utf-8")
    assert "](docs/stores/postgresql.sh)" in text
    shown = [block.text for block in blocks_of(README, text)]
    for step in STEPS[1:3]:
        assert f"{step.commands()[0].text.rstrip()}\n" in shown, step.name


def test_the_page_shows_the_script() -> None:
    """The whole file, and how it is called."""
    assert STEPS[0].text == (PAGE.parent / "postgresql.sh").read_text(encoding="utf-8")
    assert "sh postgresql.sh db.example.com 192.0.2.0/24" in README.read_text(encoding="utf-8")
    assert "`sh postgresql.sh db.example.com 192.0.2.0/24`" in TEXT


def test_init_speaks_of_the_roles_of_the_page() -> None:
    """In its help and where it asks for the address."""
    addresses = re.findall(r"postgresql://(\w+)@", " ".join((init._WHERE, *init.COMMAND.examples)))
    assert set(addresses) == {OWNER}
    named = re.findall(r"--(?:run|read)-role (\w+)", " ".join(init.COMMAND.examples))
    assert set(named) == {FIRING}


def test_each_step_can_be_done_again(postgres: PostgresServer) -> None:
    """It makes no second password, keeps no line twice, and says what exists."""
    first, init_it, for_hosts = STEPS[:3]
    [said] = [
        block.text
        for block in blocks_of(PAGE, TEXT)
        if "exists, owned by" in block.text and block.language == "text"
    ]
    with empty_postgres_machine(postgres) as machine:
        files = [machine.home / f"{role}.pgpass" for role in (OWNER, FIRING)]
        found = []
        for step in (first, init_it, for_hosts):
            ended = machine.run([step])[-1]
            made = [file.read_text() for file in files]
            (again,) = machine.run([step])
            assert (ended.status, again.status) == (0, 0), (ended, again)
            assert [file.read_text() for file in files] == made
            found.append(again.printed)
        assert (machine.home / ".pgpass").read_text() == made[1]
        for file in files:
            file.unlink()
        (without,) = machine.run([first])
        assert (without.status, [file for file in files if file.exists()]) == (0, [])
        assert {(file.stat().st_mode & 0o777) for file in machine.home.glob(".pgpass")} == {0o600}
    assert found[0] == without.printed == said.splitlines()
    assert found[1][0].startswith(
        f"schema oncecron has version 1 already; gave rights to {FIRING};"
    )
    assert found[2] == []
