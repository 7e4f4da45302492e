"""The line that explains to a person why nothing was started."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncecron.config.run_parser import ParsedRun
from oncecron.core.model import Holder, Refusal
from oncecron.run.reporter import skip_message
from oncecron.run.spec import RunSpec, make_spec

if TYPE_CHECKING:
    from oncecron.core.model import RefusalReason

ON = Holder("web2", 16, "root")
AT = 1763604000.0
HERE = "--store sqlite:///s/jobs.db --namespace test"
AGAIN = f"`oncecron run --key k --tick t --again {HERE} -- true`"
SAID: "dict[RefusalReason, str]" = {
    "held": "skipped: k is running on web2 (pid 16) since 2025-11-20T02:00:00Z (x); "
    "to wait for it: --wait DURATION",
    "done": "skipped: k tick t has already run on web2 (pid 16) at 2025-11-20T02:00:00Z (x); "
    f"to run it again: {AGAIN}",
    "passed": "skipped: k tick t is older than the newest claimed tick (x); "
    f"to run it anyway: {AGAIN}",
    "recent": "skipped: k started on web2 (pid 16) at 2025-11-20T02:00:00Z, which is too recent (x); "
    f"to run it anyway: {AGAIN}",
    "exhausted": "skipped: k tick t has no attempts left; the last one ran on web2 (pid 16) "
    f"at 2025-11-20T02:00:00Z (x); to run it again: {AGAIN}",
    "late": "skipped: k tick t is later than --starting-deadline allows",
    "paused": f"skipped: k is paused since 2025-11-20T02:00:00Z x; resume it: `oncecron resume k {HERE}`, "
    f"or `oncecron resume --all {HERE}` if all keys are paused",
    "drained": "skipped: k: host web1 is drained since 2025-11-20T02:00:00Z x; "
    f"undrain it: `oncecron undrain web1 {HERE}`",
    "unmet": "skipped: k tick t: this host does not meet --only-if (x)",
    "broken": "skipped: k tick t: broken on web2 (pid 16) at 2025-11-20T02:00:00Z (x)",
}


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    """Give a firing of the tick t on web1."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("ONCECRON_HOST", "web1")
    given = {"key": "k", "tick": "t", "store": "sqlite:///s/jobs.db", "namespace": "test"}
    return make_spec(ParsedRun(given, ["true"]))


@pytest.mark.parametrize("reason", SAID)
def test_a_skip_names_the_holder_and_the_command_to_run(
    spec: RunSpec, reason: "RefusalReason"
) -> None:
    """With the store and the namespace that the firing used."""
    refusal = Refusal(reason, ON, AT, "x")
    assert skip_message(spec, spec.firing, refusal, waits=False) == SAID[reason]


def test_a_wait_is_not_a_skip(spec: RunSpec) -> None:
    """A shard says which one it is; what is unknown is left out."""
    firing = spec.firing._replace(shards=3, shard=2)
    line = skip_message(spec, firing, Refusal("held"), waits=True)
    assert line == "waiting: k shard 2 is running"


@pytest.mark.parametrize(("key", "again"), [("k", True), ("oncecron/notify", False)])
def test_a_skip_names_no_option_that_the_command_lacks(
    spec: RunSpec, key: str, *, again: bool
) -> None:
    """Neither `again`, whose firings have --again, nor `notify` has --wait."""
    firing = spec.firing._replace(key=key, again=again)
    line = skip_message(spec, firing, Refusal("held"), waits=False)
    cure = f"wait until it has ended, or stop it: `oncecron stop {key} {HERE}`"
    assert line == f"skipped: {key} is running; {cure}"
