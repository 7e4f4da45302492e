"""The words of a command: as a shell splits them, and what they say about it."""

import subprocess
from pathlib import Path

import pytest
from crontabs import commands
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncecron.core import shell_words as words
from oncecron_crontab import guards

# Tokens

LETTERS = [
    "a", "c2", "=", "-", "%", "/", "é", "#", " ", "\t", "'", '"', "\\", '\\"', "\\\\", "\\'", "' '", '" "',
]  # fmt: skip
"""What words without expansions may be made of."""
WRITING = [" >f ", ">>'f g' ", "2>\\f ", " 2>&1 ", "<f ", " <> f ", " >|f "]
END = b"end of a call"


def soup(*more: str) -> st.SearchStrategy[str]:
    """Return texts of such letters and of `more`, closed or not."""
    return st.lists(st.sampled_from([*LETTERS, *more]), max_size=12).map("".join)


def calls_by_sh(script: str, directory: Path) -> list[list[bytes]] | None:
    """Return what `/bin/sh` calls `p` with, in a directory with a file `f`; None if it refuses the script."""
    log = directory / "calls"
    for path in (log, directory / "f"):
        path.write_bytes(b"")
    record = f"p() {{ printf '%s\\0' \"$@\" '{END.decode()}' >>calls; }}\n"
    done = subprocess.run(
        ["/bin/sh", "-c", record + script], cwd=directory, capture_output=True, check=False
    )
    if b"yntax error" in done.stderr:
        return None
    calls: list[list[bytes]] = [[]]
    for word in log.read_bytes().split(b"\0")[:-1]:
        if word == END:
            calls.append([])
        else:
            calls[-1].append(word)
    return calls[:-1]


def calls_by_tokens(script: str) -> list[list[bytes]] | None:
    try:
        found = words.tokens(script.encode())
    except words.UnclosedError:
        return None
    calls: list[list[bytes]] = [[]]
    target = False
    for token in found:
        if token.kind == words.OPERATOR:
            calls.append([])
        elif token.kind == words.WORD and not target:
            calls[-1].append(token.value)
        target = token.kind == words.REDIRECTION or (target and token.kind == words.BLANK)
    return [call[1:] for call in calls if call[:1] == [b"p"]]


IN_A_DIRECTORY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@IN_A_DIRECTORY
@given(soup())
def test_words_are_those_of_sh(tmp_path: Path, text: str) -> None:
    """With quotes, escapes and comments; where a quote is open, `/bin/sh` refuses the command too."""
    assert calls_by_tokens(f"p {text}") == calls_by_sh(f"p {text}", tmp_path)


@IN_A_DIRECTORY
@given(st.lists(soup(*WRITING), min_size=1, max_size=3), st.data())
def test_commands_are_those_of_sh(tmp_path: Path, texts: list[str], data: st.DataObject) -> None:
    """What joins them and where they write is no word."""
    joints = st.sampled_from([";", " ;", " && ", ";\n", " \n", " )\n("])
    script = "p " + "".join(text + data.draw(joints) + "p " for text in texts) + "last"
    script = f"({script})" if ")\n(" in script else script
    by_sh = calls_by_sh(script, tmp_path)
    if by_sh is not None:
        assert calls_by_tokens(script) == by_sh


@given(
    st.one_of(
        commands(),
        soup("$(", ")", "${", "}", "`", "$", "&>", ";;", "|&", "<<<", "\n").map(str.encode),
    )
)
def test_tokens_joined_are_the_command(command: bytes) -> None:
    """Byte for byte, and every token has some."""
    try:
        texts = [token.text for token in words.tokens(command)]
    except words.UnclosedError:
        return
    assert b"".join(texts) == command
    assert all(texts)


@pytest.mark.parametrize(
    ("command", "texts"),
    [
        ("cd /srv&& ./bill 'a b'>>log", "cd, ,/srv,&&, ,./bill, ,'a b',>>,log"),
        ("a#b #c 'd\n#e\nf", "a#b, ,#c 'd,\n,#e,\n,f"),
        ("a2>b 2>&1 12<c 3&>d", "a2,>,b, ,2>&,1, ,12<,c, ,3,&>,d"),
        (">| a >&2>b > #c", ">|, ,a, ,>&,2,>,b, ,>, ,#c"),
        ("(a|&b&&c||d&e;;)&>>f<<<g", "(,a,|&,b,&&,c,||,d,&,e,;;,),&>>,f,<<<,g"),
        ("a\\ b \t\rc", "a\\ b, \t,\rc"),
    ],
)
def test_tokens(command: str, texts: str) -> None:
    """Where one ends and the next begins; what only bash has is a token too, since its users write it."""
    found = words.tokens(command.encode())
    assert [token.text.decode() for token in found] == texts.split(",")


@pytest.mark.parametrize(
    ("command", "value"),
    [
        ("a$(b c)d", "a$(b c)d"), ('"$(b ")" \\"c)"', '$(b ")" \\"c)'), ("${a:-b c}'d'", "${a:-b c}d"),
        ("`a \\`b c\\` d`", "`a \\`b c\\` d`"),
        ("$((1 < 2))", "$((1 < 2))"), ("'$(' ", "$("),
    ],
)  # fmt: skip
def test_a_substitution_is_part_of_a_word_as_it_is_written(command: str, value: str) -> None:
    """Whatever stands in it."""
    first = words.tokens(command.encode())[0]
    assert (first.kind, first.value) == (words.WORD, value.encode())


@pytest.mark.parametrize(
    "command", ["a 'b", 'a "b', "a $(b", 'a "$(b"', "a ${b", "a `b", "a `b\\`"]
)
def test_what_is_left_open_has_no_tokens(command: str) -> None:
    """Nobody can tell where its words end."""
    with pytest.raises(words.UnclosedError):
        words.tokens(command.encode())


# Simple commands


@pytest.mark.parametrize(
    "command",
    [
        *("a; b", "a & b", "a | b", "a && b", "(a)", "a >x", "a <x", "a `b`", "a $(b)", "a $B", "a ${B}", "a 2>&1"),
        *("A=1 b", "if", "for x", "cd /x", "exec a", ". a", "[ -f a ]", "! a", "{ a", "time a", "echo a", "true", ":"),
        *("a *", "a ?", "a [b]", "a {b,c}", "~/a", "a ~", "a # b", "a\\ b", "a 'b", 'a "b', 'a "$b"', 'a "`b`"'),
        *('a "b\\c"', "a !b", "a\nb", "a\rb", "'a' b", "$A b", "", "  ", "a =b", "a \x01", "ä b", "-a b", "%1", "a^b"),
    ],
)  # fmt: skip
def test_what_goes_to_a_shell(command: str) -> None:
    """Whatever means more than itself to any shell, and what a shell has built in."""
    assert words.simple_words(command.encode()) is None


@given(
    st.lists(
        st.sampled_from(
            ["x", " ", "'", '"', "=", "a b", "\t", "%", "-c", "$y", "\\", "é", "/", "#"]
        ),
        max_size=8,
    )
)
def test_simple_words_are_those_of_sh(parts: list[str]) -> None:
    """What is taken for simple, /bin/sh splits into the same words."""
    command = ("true_ " + "".join(parts)).encode()
    found = words.simple_words(command)
    if found is not None:
        script = b"true_() { printf '%s\\0' true_ \"$@\"; }; " + command
        printed = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True)  # fmt: skip
        assert printed.stdout.split(b"\0")[:-1] == found


@given(st.binary().map(lambda raw: raw.replace(b"\0", b"")), st.binary(max_size=3))
def test_a_quoted_word_is_read_back(word: bytes, behind: bytes) -> None:
    """Whatever stands behind it, as long as it cannot be a part of it."""
    try:
        first = words.tokens(words.quoted(word) + b" " + behind)[0]
    except words.UnclosedError:
        first = words.tokens(words.quoted(word))[0]
    assert (first.text, first.value) == (words.quoted(word), word)


KNOWN = (
    *("/bin/sh", "/usr/bin/bash", "/bin/dash", "/usr/bin/zsh", "ksh"),
    "/usr/local/cpanel/bin/jailshell",
)
FOREIGN = ("/usr/bin/fish", "/bin/tcsh", "/usr/bin/python3", "/usr/bin/oncecron-shell", "")


@pytest.mark.parametrize("shell", [*KNOWN, *FOREIGN])
def test_shells_whose_quotes_are_known(shell: str) -> None:
    """By their names; among the others our own, which guards its lines itself."""
    assert words.is_bourne_shell(shell.encode()) == (shell in KNOWN)


def test_guarded_by_hand() -> None:
    """Wherever in the command."""
    assert guards.guard_in(b"/usr/bin/oncecron run --key x -- y") == "oncecron run"
    assert guards.guard_in(b"cd /app && 'oncecron' run --key x -- y") == "oncecron run"
    assert guards.guard_in(b"cd /app; /opt/oncecron each --key x -- y") == "oncecron each"
    assert guards.guard_in(b"pg_dump oncecron >/srv/x") is None
    assert guards.guard_in(b"/opt/oncecron-run x") is None
    assert guards.guard_in(b"oncecron items run") is None


def test_off_in_front() -> None:
    """And nowhere else."""
    assert guards.is_off(b"ONCECRON=off df")
    assert guards.is_off(b" ONCECRON=off\tdf")
    assert not guards.is_off(b"ONCECRON=offline df")
    assert not guards.is_off(b"df ONCECRON=off ")
