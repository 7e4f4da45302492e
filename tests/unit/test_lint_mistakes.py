"""The mistakes that people make in crontabs: lint finds each of them, and nothing in the right form beside it.

A mistake is a line of its own table: what is wrong, what is written, what should be written, and the kind of finding.
"""

# ruff: noqa: E501 - crontab lines in tables

from __future__ import annotations

from typing import NamedTuple

import pytest

from oncecron.crontab.lint import FINDINGS, Diagnostic, LintedCrontab, lint
from oncecron.crontab.scanner import scan

RUN = "/usr/local/bin/oncecron run"
AT_TWO = f"{RUN} --key k --schedule '0 2 * * *'"
LEAST = 63


class Mistake(NamedTuple):
    """A mistake, and the same without it."""

    what: str
    wrong: str
    right: str
    kind: str


MISTAKES = [
    # The guard
    Mistake("one line was forgotten", f"0 2 * * * {AT_TWO} -- /bin/a\n0 3 * * * /bin/b\n", f"0 2 * * * {AT_TWO} -- /bin/a\n", "unguarded"),
    Mistake("the guard ends at &&", f"0 2 * * * {AT_TWO} -- cd /app && ./bill\n", f"0 2 * * * {AT_TWO} --shell 'cd /app && ./bill'\n", "rest"),
    Mistake("the guard ends at ;", f"0 2 * * * {AT_TWO} -- /bin/a; /bin/b\n", f"0 2 * * * {AT_TWO} --shell '/bin/a; /bin/b'\n", "rest"),
    Mistake("the guard ends at a pipe", f"0 2 * * * {AT_TWO} -- /bin/a | mail joe\n", f"0 2 * * * {AT_TWO} --shell '/bin/a | mail joe'\n", "rest"),
    Mistake("a skip empties the log", f"0 2 * * * {AT_TWO} -- /bin/a > /var/log/a\n", f"0 2 * * * {AT_TWO} -- /bin/a >> /var/log/a\n", "truncate"),
    Mistake("one key for two jobs", f"0 2 * * * {AT_TWO} -- /bin/a\n0 2 * * * {AT_TWO} -- /bin/b\n", f"0 2 * * * {AT_TWO} -- /bin/a\n", "shared-key"),
    Mistake("two keys for one job", f"0 2 * * * {AT_TWO} -- /bin/a\n0 3 * * * {RUN} --key q --schedule '0 3 * * *' -- /bin/a\n", f"0 2 * * * {AT_TWO} -- /bin/a\n", "split-key"),
    Mistake("the name of the host in the key", f"0 2 * * * {RUN} --key a-$(hostname) --schedule '0 2 * * *' -- /bin/a\n", f"0 2 * * * {AT_TWO} -- /bin/a\n", "key"),
    Mistake("$HOSTNAME in the key", f"0 2 * * * {RUN} --key \"a-$HOSTNAME\" --schedule '0 2 * * *' -- /bin/a\n", f"0 2 * * * {RUN} --key \"a-$STAGE\" --schedule '0 2 * * *' -- /bin/a\n", "key"),
    Mistake("the number of the process in the key", f"0 2 * * * {RUN} --key a-$$ --schedule '0 2 * * *' -- /bin/a\n", f"0 2 * * * {AT_TWO} -- /bin/a\n", "key"),
    Mistake("the date in the key", f"0 2 * * * {RUN} --key a-$(date +\\%F) --schedule '0 2 * * *' -- /bin/a\n", f"0 2 * * * {RUN} --key a --tick $(date +\\%F) -- /bin/a\n", "key"),
    Mistake("a tick that never changes", f"0 2 * * * {RUN} --key a --tick nightly -- /bin/a\n", f"0 2 * * * {RUN} --key a --tick $(date +\\%F) -- /bin/a\n", "tick"),
    Mistake("seconds in the tick", f"0 2 * * * {RUN} --key a --tick $(date +\\%s) -- /bin/a\n", f"0 2 * * * {RUN} --key a --tick $(date +\\%Y\\%m\\%d) -- /bin/a\n", "tick"),
    Mistake("the name of the host in the tick", f"0 2 * * * {RUN} --key a --tick $(hostname)-$(date +\\%F) -- /bin/a\n", f"0 2 * * * {RUN} --key a --tick $(date +\\%F) -- /bin/a\n", "tick"),
    Mistake("a store of one host", f"0 2 * * * {AT_TWO} --store local -- /bin/a\n", f"0 2 * * * {AT_TWO} --store redis://r -- /bin/a\n", "store"),
    Mistake("a variable with a store of one host", f"ONCECRON_STORE=sqlite:///var/db\n0 2 * * * {AT_TWO} -- /bin/a\n", f"ONCECRON_STORE=redis://r\n0 2 * * * {AT_TWO} -- /bin/a\n", "store"),
    Mistake("another schedule than the line's", f"0 3 * * * {AT_TWO} -- /bin/a\n", f"0 2 * * * {AT_TWO} -- /bin/a\n", "schedule"),
    Mistake("@reboot with a tick", f"@reboot {RUN} --key a -- /bin/a\n", f"@reboot {RUN} --key a --no-tick -- /bin/a\n", "schedule"),
    Mistake("a random delay without a schedule", f"SHELL=/bin/bash\n0 2 * * * sleep $((RANDOM \\% 60)); {RUN} --key a -- /bin/a\n", f"SHELL=/bin/bash\n0 2 * * * sleep $((RANDOM \\% 60)); {AT_TWO} -- /bin/a\n", "random-sleep"),
    Mistake("each minute without a schedule", f"* * * * * {RUN} --key a -- /bin/a\n", f"* * * * * {RUN} --key a --schedule '* * * * *' -- /bin/a\n", "frequent"),
    Mistake("an option that does not exist", f"0 2 * * * {AT_TWO} --time-out 1h -- /bin/a\n", f"0 2 * * * {AT_TWO} --timeout 1h -- /bin/a\n", "options"),
    Mistake("no quotes around --schedule", f"0 2 * * * {RUN} --key k --schedule 0 2 * * * -- /bin/a\n", f"0 2 * * * {AT_TWO} -- /bin/a\n", "options"),
    Mistake("oncecron is not in cron's PATH", "0 2 * * * oncecron run --key k --no-tick -- /bin/a\n", f"0 2 * * * {AT_TWO} -- /bin/a\n", "path"),
    Mistake("the guard cannot end what sudo starts", f"0 2 * * * {AT_TWO} -- sudo -u www /bin/a\n", "0 2 * * * sudo -u www /bin/a\n", "sudo"),
    Mistake("a job in the background", f"0 2 * * * {AT_TWO} --shell '/bin/a &'\n", f"0 2 * * * {AT_TWO} --shell '/bin/a'\n", "background"),
    Mistake("nohup and &", f"0 2 * * * {AT_TWO} --shell 'nohup /bin/a >/dev/null 2>&1 &'\n", f"0 2 * * * {AT_TWO} --shell 'nohup /bin/a >/dev/null 2>&1'\n", "background"),
    Mistake("a job that only one host does", f"0 2 * * * {AT_TWO} --shell '[ $(hostname) = web1 ] && /bin/a'\n", f"0 2 * * * {AT_TWO} --shell '[ -x /bin/a ] && /bin/a'\n", "pinned"),
    Mistake("work of each host with a guard", f"0 2 * * * {AT_TWO} -- logrotate /etc/x\n", "0 2 * * * logrotate /etc/x\n", "each-host"),
    Mistake("a comment for wrap is misspelled", "# oncecron: kee=a\n0 2 * * * /bin/a\n", "# oncecron: key=a\n0 2 * * * /bin/a\n", "directive"),
    Mistake("a comment for wrap was added later", f"# oncecron: key=q\n0 2 * * * {AT_TWO} --tz UTC -- /bin/a\n", f"# oncecron: key=k\n0 2 * * * {AT_TWO} --tz UTC -- /bin/a\n", "directive"),
    # Zones
    Mistake("TZ above a guard without --tz", f"TZ=Asia/Tokyo\n0 2 * * * {AT_TWO} -- /bin/a\n", f"TZ=Asia/Tokyo\n0 2 * * * {AT_TWO} --tz Europe/Berlin -- /bin/a\n", "zone"),
    Mistake("CRON_TZ, which Debian's cron ignores", "CRON_TZ=Asia/Tokyo\n0 2 * * * /bin/a\n", "TZ=Asia/Tokyo\n0 2 * * * /bin/a\n", "zone"),
    # Time fields
    Mistake("each minute of an hour", "* 2 * * * /bin/a\n", "0 2 * * * /bin/a\n* 8-18 * * * /bin/b\n", "every-minute"),
    Mistake("a step that does not divide the hour", "*/35 * * * * /bin/a\n", "*/30 * * * * /bin/a\n0,35 * * * * /bin/b\n", "field"),
    Mistake("a step that is larger than the range", "*/100 * * * * /bin/a\n", "0 * * * * /bin/a\n", "field"),
    Mistake("a range that falls", "0 22-2 * * * /bin/a\n", "0 22-23,0-2 * * * /bin/a\n", "never"),
    Mistake("from Friday to Sunday", "0 2 * * fri-sun /bin/a\n", "0 2 * * 5-7 /bin/a\n", "never"),
    Mistake("the 31st of February", "0 0 31 2 * /bin/a\n", "0 0 28 2 * /bin/a\n", "never"),
    Mistake("the second Friday, as Quartz has it", "0 2 * * 5#2 /bin/a\n", "0 2 * * 5 /bin/a\n", "field"),
    Mistake("six fields, seconds first", "0 0 2 * * 1 /bin/a\n", "0 2 * * 1 /bin/a\n", "field"),
    Mistake("six fields of Quartz", "0 0 2 * * ? /bin/a\n", "0 2 * * * /bin/a\n", "field"),
    Mistake("a year as the last field", "0 2 1 1 * 2027 /bin/a\n", "0 2 1 1 * /bin/a\n", "field"),
    Mistake("days of Quartz after five fields", "0 2 1 * * MON-FRI /bin/a\n", "0 2 * * MON-FRI /bin/a\n", "field"),
    Mistake("a question mark", "0 2 ? * 1 /bin/a\n", "0 2 * * 1 /bin/a\n", "invalid"),
    Mistake("the last day of the month", "0 2 L * * /bin/a\n", "0 2 28 * * /bin/a\n", "invalid"),
    Mistake("Friday the 13th", "0 2 13 * 5 /bin/a\n", "0 2 13 * * /bin/a\n", "days"),
    Mistake("the hour 24", "0 24 * * * /bin/a\n", "0 0 * * * /bin/a\n", "invalid"),
    Mistake("four fields", "0 2 * * /bin/a\n", "0 2 * * * /bin/a\n", "invalid"),
    Mistake("a nickname is misspelled", "@dayly /bin/a\n", "@daily /bin/a\n", "invalid"),
    # The command
    Mistake("a line twice", "0 2 * * * /bin/a\n0 2 * * *  /bin/a\n", "0 2 * * * /bin/a\n0 3 * * * /bin/a\n", "duplicate"),
    Mistake("% in a date", "0 2 * * * tar c /x >/b/$(date +%F).tar\n", "0 2 * * * tar c /x >/b/$(date +\\%F).tar\n", "percent"),
    Mistake("errors before the output is discarded", "0 2 * * * /bin/a 2>&1 >/dev/null\n", "0 2 * * * /bin/a >/dev/null 2>&1\n0 3 * * * /bin/a 2>&1 >/dev/null | mail joe\n", "redirection"),
    Mistake("a file with the name 1", "0 2 * * * /bin/a >/dev/null 2>1\n", "0 2 * * * /bin/a >/dev/null 2>&1\n", "redirection"),
    Mistake("curly quotes", "0 2 * * * /bin/a “two words”\n", '0 2 * * * /bin/a "two words"\n', "quote"),
    Mistake("a dash of a word processor", "0 2 * * * /bin/a –force\n", "0 2 * * * /bin/a --force ‘–’\n".replace("‘–’", ""), "quote"),
    Mistake("a quote that is not closed", "0 2 * * * /bin/a 'two words\n", "0 2 * * * /bin/a 'two words'\n", "quote"),
    Mistake("a line that goes on below", "0 2 * * * /bin/a \\\n", "0 2 * * * /bin/a\n", "continued"),
    Mistake("[[ ]] in sh", "0 2 * * * [[ -x /bin/a ]] && /bin/a\n", "SHELL=/bin/bash\n0 2 * * * [[ -x /bin/a ]] && /bin/a\n", "bashism"),
    Mistake("source in sh", "0 2 * * * source /etc/env && /bin/a\n", "0 2 * * * . /etc/env && /bin/a\n", "bashism"),
    Mistake("&> in sh", "0 2 * * * /bin/a &>/dev/null\n", "0 2 * * * /bin/a >/dev/null 2>&1\n", "bashism"),
    Mistake("== in [ of sh", '0 2 * * * [ "$A" == b ] && /bin/a\n', '0 2 * * * [ "$A" = b ] && /bin/a\n', "bashism"),
    Mistake("<( ) in sh", "0 2 * * * diff <(/bin/a) /b\n", "0 2 * * * bash -c 'diff <(/bin/a) /b'\n", "bashism"),
    Mistake("$RANDOM in sh", "0 2 * * * sleep $((RANDOM \\% 60)); /bin/a\n", "SHELL=/bin/bash\n0 2 * * * sleep $((RANDOM \\% 60)); /bin/a\n", "bashism"),
    Mistake("{1..3} in sh", "0 2 * * * for i in {1..3}; do /bin/a; done\n", "0 2 * * * for i in 1 2 3; do /bin/a; done\n", "bashism"),
    Mistake("a user in a user's crontab", "0 2 * * * root /bin/a\n0 3 * * * /bin/b x\n", "0 2 * * * /bin/a root\n", "user"),
    Mistake("a command that is a comment", "0 2 * * * # /bin/a\n", "0 2 * * * /bin/a # why\n", "comment"),
    # Secrets
    Mistake("a password in a variable", "PGPASSWORD=hunter2\n0 2 * * * /bin/a\n", "PGPASSFILE=/etc/pg\n0 2 * * * /bin/a\n", "secret"),
    Mistake("a password among the arguments", "0 2 * * * mysqldump -phunter2 app\n", "0 2 * * * mysqldump app\n", "secret"),
    Mistake("a password in a URL", "0 2 * * * curl https://joe:hunter2@h/x\n", "0 2 * * * curl https://h/x\n", "secret"),
    Mistake("a token in a URL", "0 2 * * * curl 'https://h/x?a=1&api_key=hunter2hunter2'\n", "0 2 * * * curl 'https://h/x?a=1&page=2'\n", "secret"),
    Mistake("a web hook that is a secret", "0 2 * * * curl https://hooks.slack.com/services/T0/B0/hunter2hunter2hunter2\n", "0 2 * * * curl https://slack.com/services\n", "secret"),
    # Variables
    Mistake("$PATH in PATH", "PATH=$PATH:/opt/bin\n0 2 * * * /bin/a\n", "PATH=/usr/bin:/bin:/opt/bin\n0 2 * * * /bin/a\n", "expansion"),
    Mistake("$HOME in a variable", "LOG=$HOME/log\n0 2 * * * /bin/a >>$LOG\n", "0 2 * * * /bin/a >>$HOME/log\n", "expansion"),
    Mistake("a command in a variable", "DAY=$(date)\n0 2 * * * /bin/a\n", "0 2 * * * DAY=$(date) /bin/a\n", "expansion"),
    Mistake("a tilde in a variable", "DIR=~/app\n0 2 * * * cd $DIR && ./a\n", "0 2 * * * cd ~/app && ./a\n", "expansion"),
    Mistake("a comment behind a value", "MAILTO=joe # not jane\n0 2 * * * /bin/a\n", "# not jane\nMAILTO=joe\n0 2 * * * /bin/a\n", "comment"),
    Mistake("export", "export A=b\n0 2 * * * /bin/a\n", "A=b\n0 2 * * * /bin/a\n", "invalid"),
    Mistake("a shell without its directory", "SHELL=bash\n0 2 * * * /bin/a\n", "SHELL=/bin/bash\n0 2 * * * /bin/a\n", "shell"),
    Mistake("a shell with options", "SHELL=/bin/bash -l\n0 2 * * * /bin/a\n", "SHELL=/bin/bash\n0 2 * * * /bin/a\n", "shell"),
    Mistake("$USER for Debian's cron", "0 2 * * * /bin/a $USER\n", "0 2 * * * /bin/a $LOGNAME\n", "unset"),
    Mistake("no mail", 'MAILTO=""\n0 2 * * * /bin/a\n', "MAILTO=joe\n0 2 * * * /bin/a\n", "mailto"),
    Mistake("no mail of the last line", 'MAILTO=""\n0 3 * * * /bin/a >>/var/log/a 2>&1\n0 2 * * * /bin/a\n', 'MAILTO=""\n0 2 * * * /bin/a >>/var/log/a 2>&1\n', "mailto"),
    # The file
    Mistake("lines of Windows", "0 2 * * * /bin/a\r\n0 3 * * * /bin/b\r\n", "0 2 * * * /bin/a\n0 3 * * * /bin/b\n", "crlf"),
    Mistake("the last line is open", "0 2 * * * /bin/a", "0 2 * * * /bin/a\n", "newline"),
    Mistake("a mark at the top", "\ufeff0 2 * * * /bin/a\n", "0 2 * * * /bin/a\n", "invalid"),
]  # fmt: skip


def found(text: str) -> list[Diagnostic]:
    """Return what is found in the crontab of joe, which two hosts have."""
    return lint(
        [LintedCrontab(f"{host}/crontab", scan(text.encode()), "joe") for host in ("a", "b")]
    )


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_a_mistake_is_found(mistake: Mistake) -> None:
    """By its kind, in what is wrong alone, and without a secret."""
    made = found(mistake.wrong)
    assert mistake.kind in {each.finding for each in made}, made
    assert "hunter2" not in repr(made)
    assert mistake.kind not in {each.finding for each in found(mistake.right)}, found(mistake.right)


def test_there_are_as_many_mistakes_as_are_promised() -> None:
    """Each another one, of a kind that lint has."""
    assert len({mistake.wrong for mistake in MISTAKES}) == len(MISTAKES) >= LEAST
    assert {mistake.kind for mistake in MISTAKES} <= set(FINDINGS)
