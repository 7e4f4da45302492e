"""The option table of `each`: options of `run` where they mean the same, and those of the items."""

from __future__ import annotations

from oncecron.config.options import RUN_OPTION, Option

_ITEMS = "Which items"
_BUSY = "When it is busy or fails"


def _as_in_run(*names: str) -> tuple[Option, ...]:
    return tuple(RUN_OPTION[name] for name in names)


ITEM_OPTIONS = (
    Option(
        "items", "text", "Run LIST with $SHELL -c once per tick; each line that it prints is an item. Default, and "
        "-: the lines of standard input.", "LIST", _ITEMS, config="job", table="each",
    ),
    Option(
        "null", "flag", "Items end with a NUL instead of a newline, as `find -print0` writes them.", "", _ITEMS,
        config="job", table="each", short="0",
    ),
    Option(
        "json", "flag", "Each line is a JSON object, whose `id` identifies the item.", "", _ITEMS
    ),
    Option(
        "batch", "integer", "Give up to N items to one start of COMMAND.", "N", _ITEMS, "1", config="job",
        table="each", minimum=1, maximum=1000,
    ),
    Option(
        "stdin", "flag", "Give the items to COMMAND on its standard input, as lines, instead of as arguments.", "",
        _ITEMS, config="job", table="each",
    ),
    Option(
        "slots", "integer", "Run at most N commands at the same time, on all hosts together.", "N", _ITEMS, "1",
        config="job", table="each", minimum=1, maximum=1000,
    ),
    Option(
        "jobs", "integer", "Run at most N of them on this host. Default: all --slots.", "N", _ITEMS, config="job",
        table="each", minimum=1, maximum=1000,
    ),
    Option(
        "keep", "duration", "Keep the items for at least DURATION after they were loaded, so that none is run again "
        "under the same tick. Default: as long as the executions of the tick.", "DURATION", _ITEMS, config="job",
        table="each",
    ),
    Option(
        "in-doubt", "choice",
        "Choose what to do with an item whose command was killed, or whose host died: keep it as lost, or retry it.",
        "keep|retry", _BUSY, "keep", config="job", table="each", choices=("keep", "retry"),
    ),
)  # fmt: skip
"""What `each` has beyond `run`."""

EACH_OPTIONS = (
    RUN_OPTION["key"],
    RUN_OPTION["shell"]._replace(
        help='Run STRING with $SHELL -c instead of COMMAND. The items are its arguments: "$@".'
    ),
    *_as_in_run("pipefail", "only-if"),
    *ITEM_OPTIONS[:-1],
    *_as_in_run("schedule", "tz", "tick", "spread", "starting-deadline"),
    RUN_OPTION["again"]._replace(
        help="Read the list again by hand, although the tick has been run: add the items that are new, and run what "
        "is queued."
    ),
    RUN_OPTION["wait"]._replace(
        help="If all slots are taken, wait up to DURATION for one of them before skipping."
    ),
    RUN_OPTION["failover"]._replace(
        help="Wait while other hosts run the slots. If such a host dies or is cut off, a waiting host runs the items "
        "that are left."
    ),
    ITEM_OPTIONS[-1],
    RUN_OPTION["retries"]._replace(
        help="Retry an item up to N times after a failure or a timeout; then it is dead."
    ),
    RUN_OPTION["retry-delay"]._replace(
        help="Wait a random time before a retry: at least BASE, at most twice BASE. The upper limit doubles with each "
        "attempt of the item, up to CAP. A single value is a fixed delay."
    ),
    RUN_OPTION["no-retry-on"],
    RUN_OPTION["timeout"]._replace(
        help="Stop a start of COMMAND after this long: TERM, then KILL after --grace. Its items have failed."
    ),
    *_as_in_run("grace", "skip-exit"),
    RUN_OPTION["on-store-error"]._replace(
        help="Choose what to do if the store is unreachable: fail (exit status 69) or skip.",
        placeholder="fail|skip",
        choices=("fail", "skip"),
    ),
    *_as_in_run("connect-timeout", "store", "log", "namespace", "ttl", "capture", "record-command"),
    *_as_in_run("config", "pass-store"),
    RUN_OPTION["verbose"]._replace(
        help="Say what happens: a load, a start, a skip, and the progress once a minute; -vv adds tracebacks."
    ),
)

ONLY_IN_RUN = tuple(
    option
    for option in RUN_OPTION.values()
    if option.name not in {offered.name for offered in EACH_OPTIONS}
)
"""What has no meaning for items: `no-tick`, `min-gap`, `shards`, `catch-up`."""
