"""What another host, a person or a command line has written reaches no terminal and no mail as control characters."""

import json
from collections.abc import Callable

from answers import answer
from log_of import Store
from servers.oncecron import Oncecron

CONTROLS = "\x1b[2J\x07\x9b31m\u202etxt\u2066"
SHOWN = r"\x1b[2J\x07\x9b31m\u202etxt\u2066"


def test_no_command_executes_what_others_have_written(
    store: Store, new_host: Callable[..., Oncecron], operator: Oncecron
) -> None:
    """The reason of a pause, the name of a host, a command: on a terminal and in a mail."""
    strange = new_host(f"web{CONTROLS}", LANG="C.UTF-8", PYTHONUTF8="1")
    strange.environment["XDG_STATE_HOME"] = new_host().environment["XDG_STATE_HOME"]
    plain = new_host("host-b")
    strange.run("k", "--tick", "one", "--", "true", CONTROLS)
    said = plain.run("k", "-v", "--tick", "one", "--", "true").err
    assert f"web{SHOWN}" in said
    operator("pause", "k", "--reason", CONTROLS)
    said += plain.run("k", "-v", "--tick", "two", "--", "true").err
    assert f": {SHOWN}; resume it" in said
    operator("drain", f"web{CONTROLS}")
    said += strange.run("k", "-v", "--tick", "three", "--", "true").err
    said += plain.run(f"k{CONTROLS}", "--", "true").err
    said += plain.run("k", "--", f"/no/such{CONTROLS}").err
    said += plain.run("k", "--no-tick", "--timeout", CONTROLS, "--", "true").err
    for words in (
        *(
            ("why", "k"),
            ("timeline", "k"),
            ("jobs",),
            ("locks",),
            ("locks", "--pauses"),
            ("history",),
        ),
        *(("history", "--skips"), ("history", "--id", 1), ("audit",), ("history", f"k{CONTROLS}")),
        *((CONTROLS,), ("jobs", CONTROLS), ("why", "k", "--tick", "two")),
    ):
        ended = plain(*words)
        said += ended.out.decode() + ended.err
    for words in (("undrain", f"web{CONTROLS}"), ("resume", "k"), ("resume", "k")):
        ended = operator(*words)
        said += ended.out.decode() + ended.err
    assert SHOWN in said
    assert said.replace("\n", "").isprintable(), said
    [row] = answer(plain, "history")
    assert row["host"] == f"web{CONTROLS}"  # JSON stays JSON
    assert json.loads(json.dumps(row)) == row
