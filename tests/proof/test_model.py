"""The formal model of the protocol (model/oncecron.pml): the right one keeps its promises, each wrong one breaks one.

spin walks through all states. To read how a wrong variant goes wrong:

    cp tests/proof/model/* "$(mktemp -d)" && cd "$_" && spin -DNO_TICK -a oncecron.pml
    gcc -w -DSAFETY -DREACH -o pan pan.c && ./pan -i && ./pan -r -S        (the shortest way there, and its story)

A run checks half of the right variants and a third of the wrong ones, of which it is the seed's turn.
ONCECRON_TEST_MODEL=long checks all, the right ones with three hosts, three ticks, more firings and more faults.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from servers.require import program
from story_stores import rotated, seed

MODEL = Path(__file__).with_name("model") / "oncecron.pml"
LONG = os.environ.get("ONCECRON_TEST_MODEL", "short") == "long"
MEGABYTES = 12000 if LONG else 1000
PAN = ("-DSAFETY", "-DNOFAIR", "-DNOREDUCE", "-DVECTORSZ=512", f"-DMEMLIM={MEGABYTES}", "-w")

NEVER_FROZEN = {"freezes", "thaws", "loses_guard_and_wrapper", "runs_beside_another"}
NEVER_FENCED = {"writes_with_its_token", "is_refused_a_stale_write"}
NEVER_STOPPED = {
    "key_is_paused", "key_is_resumed", "is_refused_as_paused",
    "another_shard_is_granted", "is_refused_as_otherwise_divided",
}  # fmt: skip
NEVER_RESUMED = {"resumes_what_was_lost", "resumes_what_was_stopped", "resumes_an_older_tick"}
NEVER_BEHIND = {"makes_up_what_was_missed"}
NO_SESSION = {"is_told_stale", "is_told_contended", "goes_on_past_a_dead_session"}
NEVER_STRUCK_ALONE = {
    "guard_is_killed", "wrapper_is_killed", "guard_is_stopped", "wrapper_is_stopped", "goes_on",
    "guard_kills_for_the_wrapper", "wrapper_kills_for_the_guard", "wrapper_fences_a_stopped_guard",
}  # fmt: skip
NEVER_GIVES_UP = {"gives_its_tick_back", "gives_up_asking", "takes_what_was_given_back"}


class Right(NamedTuple):
    """The model as it should be, with what cannot happen in it; all else must be seen to happen."""

    name: str
    short: str
    long: str
    never: set[str]

    @property
    def macros(self) -> list[str]:
        """What the model is told, as long as it is wanted."""
        return (self.long if LONG else self.short).split()


class Wrong(NamedTuple):
    """A macro, the promise that it breaks, and what else it needs."""

    macro: str
    promise: str
    needs: str = ""


RIGHT = [
    Right("row", "FAULTS=1", "HOSTS=3 TICKS=3 FAULTS=2",
          NEVER_BEHIND | NEVER_RESUMED | NEVER_FROZEN | NEVER_FENCED | NO_SESSION | NEVER_STOPPED),
    # What a claim looks at and a grant compares besides the row of the key.
    Right("pauses-shards", "PAUSES SHARDS FAULTS=1", "PAUSES SHARDS FAULTS=2",
          NEVER_BEHIND | NEVER_RESUMED | NEVER_FROZEN | NEVER_FENCED | NO_SESSION),
    Right("session", "SESSION FAULTS=1", "SESSION FAULTS=2",
          NEVER_BEHIND | NEVER_RESUMED | NEVER_FROZEN | NEVER_FENCED | NEVER_STOPPED),
    Right("freeze", "FREEZE FAULTS=2", "FREEZE HOSTS=3 FAULTS=1",
          NEVER_BEHIND | NEVER_RESUMED | NEVER_STRUCK_ALONE | NO_SESSION | NEVER_STOPPED),
    Right("session-freeze", "SESSION FREEZE FIRINGS=2 FAULTS=2", "SESSION FREEZE FAULTS=2",
          NEVER_BEHIND | NEVER_RESUMED | NEVER_STRUCK_ALONE | NEVER_STOPPED),
    # A slot of `each` follows an attempt that was lost or stopped.
    Right("resumes", "RESUMES FAULTS=1", "RESUMES FAULTS=2",
          NEVER_BEHIND | NEVER_FROZEN | NEVER_FENCED | NO_SESSION | NEVER_STOPPED),
    # A firing whose own tick is not the next one claims what was missed first.
    Right("catch-up", "CATCH_UP TICKS=3 FAULTS=1", "CATCH_UP TICKS=3 FIRINGS=4 FAULTS=2",
          NEVER_RESUMED | NEVER_FROZEN | NEVER_FENCED | NO_SESSION | NEVER_STOPPED),
    # No firing is kept waiting for longer than a ttl, or than two with a session lock and a request heard late.
    Right("prompt", "PROMPT LONGEST_WAIT=3 FAULTS=3", "PROMPT LONGEST_WAIT=3 HOSTS=3 TICKS=3 FAULTS=2",
          NEVER_BEHIND | NEVER_RESUMED | NEVER_FROZEN | NEVER_FENCED | NO_SESSION | NEVER_STOPPED | NEVER_GIVES_UP),
    Right("session-prompt", "SESSION PROMPT LONGEST_WAIT=6 FAULTS=2",
          "SESSION PROMPT LONGEST_WAIT=6 TICKS=3 FIRINGS=4 FAULTS=2",
          NEVER_BEHIND | NEVER_RESUMED | NEVER_FROZEN | NEVER_FENCED | NEVER_STOPPED | NEVER_GIVES_UP),
]  # fmt: skip

WRONG = [
    Wrong("NO_LEASE_ROW", "never_two_at_a_time", "SESSION"),
    Wrong("NO_FENCING", "no_write_after_a_newer_start", "FREEZE"),
    Wrong("NO_TICK", "one_start_a_tick"),
    Wrong("LOST_REOPENS", "one_start_a_tick"),
    Wrong("ENDED_RESUMED", "no_start_after_the_end", "RESUMES"),
    Wrong("NO_HIGH_WATER", "ticks_rise"),
    Wrong("OWN_TICK_FIRST", "no_missed_tick_is_left", "CATCH_UP TICKS=3"),
    Wrong("TOKEN_STAYS", "tokens_rise"),
    Wrong("TRUST_FROM_RECEIPT", "never_two_at_a_time"),
    Wrong("NO_TRUST", "never_two_at_a_time"),
    Wrong("NO_WATCHDOG", "never_two_at_a_time"),
    Wrong("LOOK_BEFORE_PUBLISH", "never_two_at_a_time"),
    Wrong("RELEASE_BEFORE_DEAD", "never_two_at_a_time"),
    Wrong("CLOCK_STANDS_STILL", "never_two_at_a_time", "FREEZE"),
    Wrong("NEW_OWNER_ON_RETRY", "nobody_is_refused_because_of_himself"),
    Wrong("KNOWN_OWNER_UNLOCKED", "nobody_is_refused_because_of_himself"),
    Wrong("RUN_WITHOUT_STORE", "every_start_has_its_record"),
    Wrong("LOST_CALLED_NOT_STARTED", "every_record_has_its_start"),
    Wrong("LATE_HEARTBEATS", "nothing_is_killed_without_a_fault", "PROMPT LONGEST_WAIT=3"),
    Wrong("WAITS_FOR_THE_SESSION", "no_key_is_blocked", "SESSION PROMPT LONGEST_WAIT=6"),
    # Between a look and its write.
    Wrong("GRANT_WITHOUT_COMPARE", "never_two_at_a_time"),
    Wrong("EXPIRE_WITHOUT_COMPARE", "never_two_at_a_time"),
    Wrong("COMPARE_WITHOUT_HEARTBEAT", "never_two_at_a_time"),
    Wrong("COMPARE_WITHOUT_FENCE", "one_start_a_tick"),
    Wrong("COMPARE_WITHOUT_PAUSE", "no_start_after_a_pause_has_returned", "PAUSES"),
    Wrong("COMPARE_WITHOUT_SHARDS", "a_tick_is_divided_once", "SHARDS FIRINGS=2"),
]


RIGHT_NOW = RIGHT if LONG else rotated(RIGHT, 2 * seed(), 2)
WRONG_NOW = WRONG if LONG else rotated(WRONG, 4 * seed(), 4)


def search(directory: Path, macros: list[str], *optimise: str) -> str:
    """Let spin make a program of the model, and run it; return all that it said."""
    shutil.copytree(MODEL.parent, directory, dirs_exist_ok=True)
    defined = [f"-D{macro}" for macro in macros]
    limit = 3600 if LONG else 280
    for command in (
        [program("spin"), *defined, "-a", MODEL.name],
        [program("gcc"), *PAN, *optimise, "-o", "pan", "pan.c"],
        ["./pan", "-m100000"],
    ):
        ended = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, check=True, timeout=limit
        )
    print(ended.stdout)
    return ended.stdout


def named(pattern: str) -> set[str]:
    """Return what a pattern finds in the source of the model."""
    sources = (path.read_text(encoding="utf-8") for path in MODEL.parent.glob("*.pml"))
    return {name for source in sources for name in re.findall(pattern, source, re.MULTILINE)}


@pytest.mark.slow
@pytest.mark.timeout(3900 if LONG else 300)
@pytest.mark.parametrize("right", RIGHT_NOW, ids=[right.name for right in RIGHT_NOW])
def test_the_protocol_keeps_its_promises(right: Right, tmp_path: Path) -> None:
    """In every state that can be reached; and what puts them at stake is reached."""
    said = search(tmp_path, right.macros, "-O1")
    assert "errors: 0" in said
    assert "broken" not in said
    for incomplete in ("Search not completed", "max search depth too small", "out of memory"):
        assert incomplete not in said
    seen = {
        name: int(count) for name, count in re.findall(r"^seen (\w+) (\d+)$", said, re.MULTILINE)
    }
    assert {name for name, count in seen.items() if not count} == right.never


@pytest.mark.parametrize("wrong", WRONG_NOW, ids=[wrong.macro for wrong in WRONG_NOW])
def test_a_wrong_protocol_breaks_its_promise(wrong: Wrong, tmp_path: Path) -> None:
    """And there is a story of it."""
    macros = [wrong.macro, f"ONLY={wrong.promise}", *wrong.needs.split()]
    assert "errors: 1" in search(tmp_path, macros, "-O0")
    story = subprocess.run(
        ["./pan", "-r", "-S"], cwd=tmp_path, capture_output=True, text=True, check=False
    ).stdout
    assert re.search(rf"^host 0 fires$(.*\n)*broken: {wrong.promise}$", story, re.MULTILINE)


def test_every_promise_can_be_broken() -> None:
    """No promise that nothing could break, and no wrong variant that is not tried."""
    assert {wrong.promise for wrong in WRONG} == named(r"\bpromise\((\w+), [^c]")
    macros = named(r"^#ifn?def (\w+)")
    sizes = {"HOSTS", "TICKS", "FIRINGS", "FAULTS"}
    assert {wrong.macro for wrong in WRONG} == macros - sizes - {
        "SESSION", "FREEZE", "PROMPT", "PAUSES", "SHARDS", "RESUMES", "CATCH_UP", "ONLY",
    }  # fmt: skip


def test_everything_happens_in_some_model() -> None:
    """What cannot happen in one form of the model is seen in another."""
    assert not set.intersection(*(right.never for right in RIGHT))
