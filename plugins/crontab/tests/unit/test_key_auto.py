"""`--key auto` derives the key of `crontab wrap`, for the lines of the corpus and for made-up ones."""

import shlex

from crontabs import EXAMPLES, REALISTIC, commands
from hypothesis import given, settings

from oncecron.config.run_parser import parse_run
from oncecron.host.names import user_name
from oncecron.run.spec import key_of
from oncecron_crontab.percent_sign import shell_command
from oncecron_crontab.prefix import read_prefix
from oncecron_crontab.scanner import scan
from oncecron_crontab.wrap import WrapSettings, wrap

GUARDING = WrapSettings("/usr/bin/oncecron", "UTC", user=user_name())


def assert_one_key(command: bytes) -> bool:
    """Compare the key of wrap with the key of run for the same line; False if wrap leaves the line."""
    done = wrap(scan(b"0 2 * * * %b\n" % command), GUARDING)
    prefixes = [read_prefix(entry.command) for entry in scan(done.data).entries()]
    if not prefixes or prefixes[0] is None:
        return False
    (entry,) = scan(done.data).entries()
    words = shlex.split(shell_command(entry.command).decode("utf-8", "surrogateescape"))
    parsed = parse_run(words[2:])
    assert parsed is not None
    assert key_of(parsed) == parsed.given["key"] == prefixes[0].options["key"]
    assert key_of(parsed._replace(given={**parsed.given, "key": "auto"})) == parsed.given["key"]
    return True


def test_the_key_of_wrap_for_each_line_of_the_corpus() -> None:
    """As words and as a string."""
    found = [
        assert_one_key(entry.command)
        for path in REALISTIC
        for entry in scan(path.read_bytes(), system=path.name.startswith("system-")).entries()
    ]
    assert found.count(True) > 80


@settings(max_examples=EXAMPLES)
@given(commands())
def test_the_key_of_wrap_for_any_line(command: bytes) -> None:
    """Also for one that nobody would write."""
    assert_one_key(command)


def test_a_command_that_run_takes_for_an_option_is_left() -> None:
    """Cron would start it, and oncecron would not."""
    assert not any(map(assert_one_key, (b"--", b"-v", b"--help")))
