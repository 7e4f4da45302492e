"""What `crontab lint` finds: each kind by a line that has it, and by one that is near and has it not."""

# ruff: noqa: E501 - crontab lines in tables

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from crontabs import lines
from hypothesis import given
from hypothesis import strategies as st

from oncecron.core.derived_key import derived_key
from oncecron_crontab.cli.files import CrontabFile, read_source
from oncecron_crontab.crons import CRONS
from oncecron_crontab.lint import FINDINGS, Diagnostic, LintedCrontab, lint
from oncecron_crontab.scanner import scan
from oncecron_crontab.wrap import WrapSettings, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RUN = "/usr/local/bin/oncecron run"
EACH = "/usr/local/bin/oncecron each"
GUARDED = f"0 1 * * * {RUN} --key other --schedule '0 1 * * *' -- /bin/other\n"
KEPT = Path(__file__).parents[4] / "tests" / "crontabs" / "debian"
INSTALLED = [path for path in Path("/etc/cron.d").glob("*") if not path.name.startswith(".")]
DEBIAN = [KEPT / "php-common" / "php", Path("/etc/crontab"), *INSTALLED]


def found(
    text: str,
    jobs: Mapping[str, Mapping[str, str]] | None = None,
    *,
    user: str | None = "joe",
    system: bool = False,
    **options: bool,
) -> list[Diagnostic]:
    """Return what is found in one crontab."""
    source = LintedCrontab("crontab", scan(text.encode(), system=system), None if system else user)
    return lint([source], jobs, **options)


def kinds(findings: Iterable[Diagnostic]) -> list[str]:
    """Return their kinds."""
    return [each.finding for each in findings]


def line(options: str, schedule: str = "0 2 * * *", before: str = "") -> str:
    """Return a line with a guard; without options of their own they name the key k and the same schedule."""
    typed = f" {options}".partition(" -- ")[0]
    given = "" if "--key" in typed else "--key k "
    given += "" if "--schedule" in typed else f"--schedule '{schedule}' "
    return f"{schedule} {before}{RUN} {given}{options}\n"


def each(options: str, schedule: str = "0 2 * * *", before: str = "", items: str = "list") -> str:
    """Return a line with `oncecron each`; without options of their own it has the key k, the schedule and items."""
    typed = f" {options}".partition(" -- ")[0]
    given = "" if "--key" in typed else "--key k "
    given += "" if "--schedule" in typed or "--tick" in typed else f"--schedule '{schedule}' "
    given += "" if "--items" in typed or not items else f"--items {items} "
    return f"{schedule} {before}{EACH} {given}{options}\n"


# One kind each

CASES = [
    # kind, what has it, words of the message, what has it not
    ("unguarded", GUARDED + "0 2 * * * /bin/bill\n", "`/bin/bill` runs on every host", "0 2 * * * /bin/bill\n"),
    ("unguarded", GUARDED + "0 2 * * * /bin/bill\n", "`# oncecron: off` above it", GUARDED + "# oncecron: off\n0 2 * * * /bin/bill\n"),
    ("unguarded", "ONCECRON_STORE=local\n" + GUARDED + "0 2 * * * bill\n", "oncecron crontab wrap",
     GUARDED + "0 2 * * * ONCECRON=off /bin/bill\n"),
    ("unguarded", GUARDED + "0 2 * * * bill\n", "every host",
     GUARDED + "0 22-2 * * * bill\n@reboot bill\n0 2 * * * cd / && run-parts /etc/x\n0 3 * * * /usr/sbin/anacron -s\n" "0 4 * * * /usr/bin/oncecron flush\n"),
    ("pinned", line("--shell '[ $(hostname) = web1 ] && bill'"), "the test of `$(hostname)` in",
     line("-- bill", before="[ $(hostname) = web1 ] && ")),
    ("pinned", GUARDED + "0 2 * * * [ $(hostname) = web1 ] && bill\n", "while that host is down",
     GUARDED + "# oncecron: off\n0 3 * * * case $HOSTNAME in a) bill;; esac\n"),
    ("background", line("--shell 'cd /x && bill &'"), "`&` in `cd /x && bill &` starts", line("-- bill") + line("--key p -- pay &", "0 3 * * *")),
    ("background", "SHELL=/usr/bin/oncecron-shell\n0 2 * * * tmux new -d bill\n", "tmux in", "0 2 * * * tmux new -d bill\n"),
    ("unguarded", GUARDED + "0 2 * * * pay &\n", "start it in the foreground, and put `oncecron run` in front; if", GUARDED + "0 2 * * * reboot &\n"),
    ("unguarded", GUARDED + "# Puppet Name: x\n0 2 * * * pay\n", "Puppet writes the line: put `oncecron run` where",
     "# Puppet Name: x\n" + line("-- pay")),
    ("each-host", line("-- apt-get update"), "only one host runs `apt-get update`, but each host has its own packages",
     "# oncecron: key=k\n" + line("-- apt-get update") + GUARDED + "0 4 * * * logrotate /etc/l\n"),
    ("unguarded", "0 1 * * * bill\nSHELL=/usr/bin/oncecron-shell\n0 2 * * * pay\n", "`bill` runs",
     "SHELL=/usr/bin/oncecron-shell\n0 1 * * * bill\n0 2 * * * cd /app; ./pay > log\n"),
    ("rest", line("-- cd /app && ./bill.sh"), "covers only `cd /app`: `./bill.sh` runs on every host",
     line("-- ./bill.sh", before="cd /app && ")),
    ("rest", line("-- /bin/bill; rm -r /spool/bills"), "`rm -r /spool/bills` runs on every host",
     line("--shell '/bin/bill; rm -r /spool/bills'")),
    ("rest", line("-- /bin/bill | mail -s bills joe"), "`mail -s bills joe` runs", line("-- /bin/bill 2>&1 | logger -t bill")),
    ("rest", line("-- /bin/bill & /bin/pay"), "`/bin/pay` runs",
     line("-- /bin/bill || echo failed", before="[ -x /bin/bill ] && . /etc/env; umask 077; ")),
    ("rest", line("--skip-exit 9 -- /bin/bill || mail joe"), "`mail joe` runs", line("-- /bin/bill || mail joe")),
    ("rest", line("-- bill | tee /var/log/bill"), "`tee /var/log/bill` runs",
     line("-- bill | tee -a log", before="cd /x || exit 1; date; ") + line("-- bill; done", before="for i in a b; do ")),
    ("rest", line("-- bill || { echo x; mail joe; } && pay"), "`pay` runs", line("-- bill || { echo x; mail joe; } > failed")),
    ("rest", line("-- bill; (echo x; mail joe)"), "`echo x` runs", line("-- bill || (echo x; mail joe) | mail joe; exit 0")),
    ("rest", line("-- bill | grep -v x || mail joe"), "`mail joe` runs", line("-- bill | ts")),
    ("rest", line("-- bill", before="./fetch && "), "`./fetch` runs on every host", line("-- bash -c './fetch && bill'")),
    ("rest", line('-- bill; pay"', before='nice bash -c "'), "covers only `bill`: `pay` runs",
     line('-- bill || mail joe"', before='cd / && bash -c "cd /x && ') + line('-- bill" || mail joe', before='sh -c "')),
    ("rest", line('-- bill" && pay', before='sh -c "'), "`pay` runs", line("-- sh -c 'oncecron run --key b -- bill; pay'")),
    ("rest", line('-- bill; pay"', before='flock /x ionice -c 3 bash -l -c "'), "`pay` runs", line('-- bill"', before='flock -n /x ionice -c 3 sh -c "')),
    ("rest", line('-- bill; pay" joe', before='su -lc "'), "`pay` runs", line('-- bill"', before='su - joe -c "cd x; ')),
    ("truncate", line('-- bill >x"', before='bash -c "'), "`x`", line('-- bill"', before='bash -c ">x; ')),
    ("truncate", line('-- bill" >x', before='bash -c "'), "`x`", line('-- bill" >/dev/null', before='bash -c "true; ')),
    ("truncate", line("-- /bin/bill > /var/log/bill.log 2>&1"), "hosts that skip also empty `/var/log/bill.log`",
     line("-- /bin/bill >> /var/log/bill.log 2>&1")),
    ("truncate", line("-- /bin/bill; } 2> err.log", before="{ "), "empty `err.log`", line("-- /bin/bill > /dev/null 2>&1")),
    ("truncate", line("-- bill >| log"), "`log`", line("--shell 'bill > log'")),
    ("truncate", line("-- bill || echo x; > log"), "`log`", line("-- bill || { echo x; date; } > log")),
    ("pipe", line("--shell 'mysqldump a | gzip >x'"), "mysqldump can fail", line("--pipefail --shell 'mysqldump a | gzip >x'")),
    ("pipe", line("--shell 'a | grep -v b >>x'"), "add --pipefail; or set SHELL=", line("--shell 'cat a | grep -v b >>x'")),
    ("pipe", line("--shell 'a | grep -v b >>x'"), "a grep that finds nothing fails too", line("--shell 'a | grep -q b || c'")),
    ("pipe", "SHELL=/bin/bash\n" + line("--shell 'pg_dump a | gzip >x && mv x y'"), "gzip; write `set -o pipefail;` in front",
     "SHELL=/bin/bash\n" + line("--shell 'set -o pipefail; pg_dump a | gzip >x && mv x y'")),
    ("pipe", line("-- su pg -c 'pg_dump a | gzip >x'"), "at the beginning of its string", line("-- su pg -c 'pg_dump a | head >x'")),
    ("pipe", line("--shell '{ echo a; b; } | mail c'"), "b can fail", line("--shell 'if b | tee c; then d; fi; e | f; g'")),
    ("pipe", "SHELL=/usr/bin/oncecron-shell\n0 2 * * * a | b\n", "set `pipefail = true` in [job.", "SHELL=/usr/bin/oncecron-shell\n0 2 * * * a | b || true\n"),
    ("shared-key", line("-- /bin/bill") + line("-- /bin/pay"), "key k is also the key of `/bin/bill` in line 1",
     line("-- /bin/bill a") + line("--shell '/bin/bill  \"a\"'", "0 3 * * *")),
    ("split-key", line("-- bill") + line("--key q -- 'bill'"), "has key q here and k in line 1",
     line("-- bill a") + line("--key q -- bill b")),
    ("schedule", f"0 2 * * * {RUN} --key k --schedule '0 3 * * *' -- a\n", "runs at '0 2 * * *', but --schedule is",
     f"@daily {RUN} --key k --schedule '0 0 * * 0-6' -- a\n5 4 * * sun {RUN} --key q --schedule '05 4 * * 7' -- b\n"),
    ("schedule", f"0 2 * * 1 {RUN} --key k --schedule '0 2 1 * 1' -- a\n", "firings get the wrong tick",
     f"*/30 2 * * * {RUN} --key k --schedule '*/30 2 * * *' -- a\n"),
    # in spring one of them is skipped, and the other is not
    ("schedule", f"0,30 2 * * * {RUN} --key k --schedule '*/30 2 * * *' -- a\n", "the wrong tick",
     f"0,30 2 * * * {RUN} --key k --schedule '0-30/30 2 * * *' -- a\n"),
    ("schedule", f"@reboot {RUN} --key k -- a\n", "@reboot has no schedule", f"@reboot {RUN} --key k --no-tick -- a\n"),
    ("zone", "TZ=Asia/Tokyo\n" + line("-- a"), "cron fires in the host's time zone", "TZ=Asia/Tokyo\n" + line("--tz Europe/Berlin -- a")),
    ("random-sleep", f"0 2 * * * sleep $((RANDOM \\% 60)); {RUN} --key k -- a\n", "different minutes",
     line("-- a", before="sleep $((RANDOM \\% 60)); ")),
    ("random-sleep", f"0 2 * * * perl -e 'sleep int(rand(9))' && {RUN} --key k -- a\n", "add --schedule '0 2 * * *'",
     f"0 2 * * * sleep 30; {RUN} --key k -- a\n"),
    ("random-sleep", f"0 2 * * * bash -c 'sleep $((RANDOM \\% 60)); {RUN} --key k -- a'\n", "different minutes",
     line('-- a"', before='bash -c "sleep $((RANDOM \\% 60)); ')),
    ("frequent", f"*/4 * * * * {RUN} --key k -- a\n", "use --schedule '*/4 * * * *'", f"*/5 * * * * {RUN} --key k -- a\n"),
    ("frequent", f"58,1 1-2 * * * {RUN} --key k -- a\n", "every few minutes",
     f"58,1 1 * * * {RUN} --key k -- a\n* * * * * {RUN} --key q --tick $(date +\\%H) -- b\n"),
    ("frequent", "SHELL=/bin/oncecron-shell\n* * * * * /a\n", "schedule = '* * * * *' in [job.a-", line("-- a", "* * * * *")),
    ("frequent", "SHELL=/bin/oncecron-shell\n* * * * * /a.sh\n", 'in [job."a.sh-', line("-- a", "* * * * *")),
    ("schedule", "SHELL=/bin/oncecron-shell\n@reboot a\n", "ONCECRON=off in front", "SHELL=/bin/oncecron-shell\n@reboot ONCECRON=off a\n"),
    ("never", "0 22-2 * * * a\n", "22-2 in the hour field is a falling range", "0 22-23,0-2 * * * a\n"),
    ("field", "0 3 1 * 6-1 a\n", "reads it as no day, and runs the line by the other day field", "0 3 1 * 0-6 a\n"),
    ("never", "0 3 */2 * 6-1 a\n", "6-1 in the day-of-week field is a falling range", "0 3 */2 * 0-6 a\n"),
    ("never", "0 0 31 2 * a\n", "month 2 has no day 31", "0 0 29 2 * a\n"),
    ("never", "0 0 31 4,jun,9 * a\n", "use a day that exists", "0 0 31 4,jun,10 * a\n"),
    ("field", "0 2 * * 5#2 a\n", "reads 5#2 in the day-of-week field as 5", "0 2 * * fri,SUN a\n"),
    ("field", "0 2,22-3 * * * a\n", "as 2 and ignores the rest", "00 02,3-22 * * * a\n"),
    ("sudo", line("-- sudo -u www /bin/bill"), "as joe, oncecron cannot end a command", line("-- bill", before="sudo ")),
    ("sudo", line("-- sudo /bin/bill"), "root's crontab", line("-- visudo -c") + "0 2 * * * sudo /bin/bill\n"),
    ("sudo", line("--shell 'cd /x && A=b /usr/bin/sudo bill'"), "as another user", line("--shell 'echo sudo'")),
    ("sudo", line("-- bill && sudo pay"), "root's crontab", line("-- bill", before="cd /x && sudo -u www ")),
    ("sudo", line('-- sudo bill"', before='sudo sh -c "'), "as another user", line('-- bill"', before='sudo sh -c "')),
    ("sudo", line("--shell 'sudo bill'"), "as another user", line("-- echo sudo")),
    ("options", f"0 2 * * * {RUN} --kay k -- a\n", "an option is unknown, incomplete or given twice", f"0 2 * * * {RUN} $OPTIONS -- a\n"),
    ("options", f"0 2 * * * {RUN} --key k --key l -- a\n", "given twice", f"0 2 * * * {RUN} --key k -- a --key l\n"),
    ("options", f"0 2 * * * {RUN} --key -- a\n", "incomplete", f"0 2 * * * {RUN} --key $KEY -- a\n"),
    ("options", f"0 2 * * * {RUN} --no-tick -- a\n", "--key is missing", f"0 2 * * * {RUN} --key=k --no-tick a\n"),
    ("options", line("--timeout foo -- a"), "--timeout: ", line("--timeout $LONG -- a")),
    ("options", line("--key 'a b' -- a"), "'a b'", line('--key "$KEY" -- a')),
    ("options", line("--"), "no command after --", f"0 2 * * * {RUN} --key k --no-tick\n"),
    ("options", line("--shell b -- a"), "leave one of them out", line("--shell b")),
    ("options", line("--tick t -- a"), "--schedule and --tick: only one", f"0 2 * * * {RUN} --key k --tick t -- a\n"),
    ("options", line("--tz Mars/X -- a"), "Mars/X", line("--tz Europe/Berlin -- a")),
    ("options", line("--retry-delay 1s -- a"), "--retries", line("--retry-delay 1s --retries $N -- a")),
    ("options", f"0 2 * * * {RUN} --key k --tick 'a b' -- a\n", "without spaces", f"0 2 * * * {RUN} --key k --tick `b` -- a\n"),
    ("options", each("--kay k -- a"), "`oncecron each` fails at every firing: an option is unknown", each("--in-doubt retry -0 -- a")),
    ("options", each("--shards 2 -- a"), "use `oncecron each --key NAME --items LIST -- COMMAND`", each("--slots 2 -- a")),
    ("options", f"0 2 * * * {EACH} --items b -- a\n", "--key is missing", each("--items b -- a")),
    ("options", each("--null --json -- a"), "--null and --json", each("--json -- a")),
    ("options", each("--jobs 3 -- a"), "raise --slots", each("--jobs 3 --slots 3 -- a")),
    ("options", each("--batch 0 -- a"), "--batch: '0' is too small", each("--batch $N -- a")),
    ("items", each("-- a", items=""), "add --items LIST, or `items` to [job.k.each]", each("-- a <b", items="")),
    ("items", each("--items - -- a"), "the list is always empty", each("-- a", items="", before="echo b | ")),
    ("items", each("--tick t1 -- a", items=""), "no standard input", each("--tick t1 --again -- a", items="")),
    ("items", each("-- a", items="") + "1 2 * * * cat %b\n", "no standard input", each("-- a%b%c", items="")),
    ("shards", each("--slots 2 -- a") + each("--slots 4 -- a", "0 3 * * *"), "has --slots 4 here and --slots 2 in line 1", each("--slots 2 -- a") + each("--slots 2 -- a", "0 3 * * *")),
    ("shards", line("--shards 2 -- a") + line("-- a", "0 3 * * *"), "has --shards 1 here", line("--shards 2 -- a") + line("--shards 2 -- a", "0 3 * * *")),
    ("shared-key", each("--items b -- a") + each("--items c -- a"), "also the key of `b | a` in line 1", each("--items b -- a") + each("--items 'b' -- a", "0 3 * * *")),
    ("shared-key", each("-- a") + line("-- c"), "is also the key of", each("-- a") + line("--key l -- c")),
    ("split-key", each("--items b -- a") + each("--key l --items b -- a"), "`b | a` has key l here and k in line 1", each("--items b -- a") + each("--key l --items c -- a")),
    ("schedule", each("-- a").replace("0 2 * * * /", "0 3 * * * /"), "--schedule is '0 2 * * *'", each("-- a")),
    ("schedule", f"@reboot {EACH} --key k --items b -- a\n", "use --tick with a name", f"@reboot {EACH} --key k --tick t --items b -- a\n"),
    ("zone", "TZ=UTC\n" + each("-- a"), "set --tz", "TZ=UTC\n" + each("--tz UTC -- a")),
    ("tick", each("--tick spring -- a"), "never changes", each("--tick spring --again -- a")),
    ("tick", each("--tick $(hostname) -- a"), "all of them run the command", each("--tick spring-1 -- a")),
    ("key", each("--key k-$HOSTNAME -- a"), "is a part of the key", each("--key k-$APP -- a")),
    ("frequent", f"*/2 * * * * {EACH} --key k --items b -- a\n", "--schedule", each("-- a", "*/2 * * * *")),
    ("random-sleep", f"0 2 * * * sleep $RANDOM; {EACH} --key k --items b -- a\n", "to `oncecron each`", each("-- a", before="sleep 5; ")),
    ("rest", each("-- a", items="", before="/bin/list | "), "put that command into --items", each("-- a", items="", before="cd /x; echo b | ")),
    ("rest", each("-- a && mail joe"), "a line of its own, with `oncecron run`", each("-- a || mail joe")),
    ("truncate", each("-- a > /x"), "use >>", each("-- a >> /x")),
    ("each-host", each("-- apt-get update"), "remove `oncecron each`", each("-- a-get update")),
    ("sudo", each("--items 'sudo list' -- a"), "root's crontab", each("--items 'echo sudo' -- a")),
    ("unguarded", each("-- a") + "0 3 * * * c\n", "runs on every host", each("-- a") + "# oncecron: off\n0 3 * * * c\n"),
    ("invalid", "60 2 * * * a\n", "bad minute: Debian's cron rejects the whole file", "59 2 * * * a\n"),
    ("invalid", "0 2 * * * a\0\n", "reads the rest as another line; remove the byte", "0 2 * * * a\n"),
    ("invalid", f"0 2 * * * {'a' * 999}\n", "`command` in [job.KEY]", f"0 2 * * * {'a' * 900}\n"),
    ("invalid", "A=\n0 2 * * * a\n", "Debian 12's cron rejects a file with a variable that has no value; write two quotes", 'A=""\n0 2 * * * a\n'),
    ("return", "0 2 * * * a\r\n", "remove it, such as with `dos2unix`", "0 2 * * * printf 'a\\r'\n"),
    ("return", "0 2 * * * a\\r\n", "a shell reads as r", "0 2 * * * tr -d \\\\r\n"),
    ("newline", "0 2 * * * a", "the last line has no newline", "0 2 * * * a\n"),
    ("directive", f"# oncecron: key=q\n{line('--tz UTC -- a')}", "then `oncecron crontab wrap`", f"# oncecron: key=k\n{line('--tz UTC -- a')}"),
    ("directive", "# oncecron: kee=a\n0 2 * * * a\n", "unknown option 'kee'; did you mean key?", "# oncecron: off\n0 2 * * * a\n"),
    ("directive", "# oncecron: key=a\n\n0 2 * * * a\n", "no command follows", "# oncecron: key=a\n0 2 * * * a\n"),
    ("key", f"0 2 * * * {RUN} --key \"a-$HOSTNAME\" --schedule '0 2 * * *' -- /bin/a\n", "", f"0 2 * * * {RUN} --key \"a-$STAGE\" --schedule '0 2 * * *' -- /bin/a\n"),
    ("key", f"0 2 * * * {RUN} --key a-$$ --schedule '0 2 * * *' -- /bin/a\n", "", f"0 2 * * * {RUN} --key k --schedule '0 2 * * *' -- /bin/a\n"),
    ("key", f"0 2 * * * {RUN} --key a-$(date +\\%F) --schedule '0 2 * * *' -- /bin/a\n", "", f"0 2 * * * {RUN} --key a --tick $(date +\\%F) -- /bin/a\n"),
    ("tick", f"0 2 * * * {RUN} --key a --tick nightly -- /bin/a\n", "", f"0 2 * * * {RUN} --key a --tick $(date +\\%F) -- /bin/a\n"),
    ("tick", f"0 2 * * * {RUN} --key a --tick $(date +\\%s) -- /bin/a\n", "", f"0 2 * * * {RUN} --key a --tick $(date +\\%Y\\%m\\%d) -- /bin/a\n"),
    ("tick", f"0 2 * * * {RUN} --key a --tick $(hostname)-$(date +\\%F) -- /bin/a\n", "", f"0 2 * * * {RUN} --key a --tick $(date +\\%F) -- /bin/a\n"),
    ("zone", "CRON_TZ=Asia/Tokyo\n0 2 * * * /bin/a\n", "", "TZ=Asia/Tokyo\n0 2 * * * /bin/a\n"),
    ("field", "0 0 2 * * 1 /bin/a\n", "", "0 2 * * 1 /bin/a\n"),
    ("field", "0 0 2 * * ? /bin/a\n", "", "0 2 * * * /bin/a\n"),
    ("field", "0 2 1 * * MON-FRI /bin/a\n", "", "0 2 * * MON-FRI /bin/a\n"),
    ("duplicate", "0 2 * * * /bin/a\n0 2 * * *  /bin/a\n", "", "0 2 * * * /bin/a\n0 3 * * * /bin/a\n"),
    ("percent", "0 2 * * * /bin/a $(date +%F)\n", "write \\%", "0 2 * * * /bin/a $(date +\\%F)\n"),
    ("percent", '0 2 * * * /bin/a "5%"\n', "standard input", "0 2 * * * mail root%Hello, 5%\n"),
    ("percent", "0 2 * * * date -u +%F >/x\n", "standard input", "0 2 * * * cat -%+x\n"),
    ("variable", "ONCECRON_STROE=redis://a\n0 2 * * * /bin/a\n", "did you mean ONCECRON_STORE?",
     "ONCECRON_STORE=redis://a\nONCECRON=off\n0 2 * * * /bin/a\n"),
    ("variable", "0 2 * * * env ONCECRON_HSOT=web1 /bin/a\n", "did you mean ONCECRON_HOST?",
     "0 2 * * * ONCECRON_HOST=web1 /bin/a\n"),
    ("quote", "0 2 * * * /bin/a 'two words\n", "", "0 2 * * * /bin/a 'two words'\n"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "has", "words", "has_not"), CASES)
def test_a_finding_is_made_where_it_is_due(kind: str, has: str, words: str, has_not: str) -> None:
    """Once, with its words and a cure; and not where a line only looks like it."""
    made = [each for each in found(has) if each.finding == kind]
    assert len(made) == 1, found(has)
    assert words in f"{made[0].message}; {made[0].cure}"
    assert made[0].cure
    assert "hunter2" not in repr(found(has, required=True))
    assert kind not in kinds(found(has_not)), found(has_not)


@pytest.mark.parametrize("has_not", sorted({has_not for *_, has_not in CASES}))
def test_what_is_near_has_nothing_of_another_kind(has_not: str) -> None:
    """But for what it is shown to have on purpose."""
    on_purpose = {"frequent", "never", "unguarded", "sudo", "tick", "duplicate"}
    assert set(kinds(found(has_not))) <= on_purpose, found(has_not)


def test_every_kind_is_tried() -> None:
    """Also those of several files, below."""
    assert {kind for kind, *_ in CASES} | {"missing", "not-read", "section", "store"} == set(
        FINDINGS
    )


def test_the_line_is_named() -> None:
    """That of the job, of the variable, of the comment; in their order."""
    text = "CRON_TZ=UTC\n\n# oncecron: on\n0 2 * * * a\n0 2 * * 5#2 a '\n60 * * * * x"
    places = [(each.line, each.finding) for each in found(text)]
    assert places == [
        (1, "zone"), (3, "directive"), (5, "field"), (5, "quote"), (6, "invalid"), (6, "newline"),
    ]  # fmt: skip


def test_several_findings_of_a_kind_on_one_line_are_all_reported() -> None:
    """Each field by itself."""
    assert kinds(found("5#2 5#2 * * * a\n")) == ["field", "field"]


# What changes it


def test_every_line_may_be_required_to_have_a_guard() -> None:
    """Also in a file without any, and what is usually each host's own; not what somebody has marked."""
    text = "0 2 * * * a\n@reboot b\n0 3 * * * run-parts x\n# oncecron: off\n0 4 * * * c\n0 5 * * * oncecron flush\n"
    assert kinds(found(text)) == []
    assert [(each.line, each.finding) for each in found(text, required=True)] == [
        (number, "unguarded") for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("0 2 * * * a\n", "(with `oncecron crontab wrap`)"), ("SHELL=/usr/bin/fish\n0 2 * * * a\n", None),
        ("@reboot a\n", None), ("0 2 * * * cd / && run-parts x\n", None),
        (line("-- a; b"), ", or remove `oncecron run` and use `oncecron crontab wrap`"),
        (line("-- a > b"), ", or remove `oncecron run` and use `oncecron crontab wrap`"),
        (line("-- run-parts x"), None), (line("--shell 'a &'"), None),
        (f"@reboot {RUN} --key k --no-tick -- a; b\n", None), (f"# oncecron: off\n{line('-- a; b')}", None),
    ],
)  # fmt: skip
def test_wrap_is_the_cure_where_it_is_one(text: str, cure: str | None) -> None:
    """Not of what it would leave as it is."""
    (made,) = found(text, required=True)
    assert cure in made.cure if cure else "wrap" not in made.cure
    if cure:
        named = cure.replace("wrap`", "wrap --only PATTERN`")
        system = re.sub(r"^((?:\S+ ){5})", r"\1joe ", text)
        assert named in found(system, required=True, system=True)[0].cure


def test_the_configuration_counts() -> None:
    """A schedule in [job.KEY] is one; if it is another than the line's, that is a finding."""
    text = f"*/2 * * * * {RUN} --key k -- a\n"
    assert kinds(found(text)) == ["frequent"]
    assert kinds(found(text, {"k": {"schedule": "*/2 * * * *"}})) == []
    assert kinds(found(text, {"k": {"schedule": "*/3 * * * *"}})) == ["schedule"]
    assert kinds(found(text, {"k": {"no-tick": "true", "retries": "2", "shards": "2"}})) == [
        "options"
    ]
    assert (
        kinds(found(line("--"), {"k": {"command": "a", "no-tick": "true", "min-gap": "1h"}})) == []
    )
    assert kinds(found(text, {"other": {"schedule": "*/2 * * * *"}})) == ["frequent"]


def test_the_configuration_counts_for_each() -> None:
    """Items and slots in [job.KEY.each], a schedule in [job.KEY]; what has no meaning for it stops every firing."""
    pytest.importorskip("oncecron_each")
    text = f"*/2 * * * * {EACH} --key k -- a\n"
    assert kinds(found(text)) == ["frequent", "items"]
    own = {"each.items": "list", "each.slots": "4", "each.in-doubt": "retry"}
    section = {"schedule": "*/2 * * * *", **own}
    assert kinds(found(text, {"k": section})) == []
    (made,) = found(text, {"k": {**section, "no-tick": "true"}})
    assert made.message.endswith(
        "no_tick in its section of the configuration file has no meaning for `oncecron each`"
    )
    assert found(line("-- a"), {"k": {"each.slots": "4"}}) == found(line("-- a"))


def test_a_key_auto_of_each_uses_its_section() -> None:
    """The key of the command, whatever the list; `{}` is no text that the shell changes."""
    pytest.importorskip("oncecron_each")
    key = derived_key(b"/bin/send '{}'")
    text = f"0 2 * * * {EACH} --key auto --schedule '0 2 * * *' --items 'ls *' -- /bin/send {{}}\n"
    source = LintedCrontab("crontab", scan(text.encode()), "joe")
    jobs = {key: {"each.slots": "2"}, "other": {"each.slots": "2"}}
    toml = f"[job.{key}]\n[job.other]\n"
    (made,) = lint([source], jobs, configuration=("oncecron.toml", toml))
    assert (made.finding, made.line) == ("section", 2)


def test_a_command_of_the_configuration_is_another_for_each_key() -> None:
    """Two keys without a command on their lines do not share one."""
    text = f"0 2 * * * {RUN} --key a --no-tick\n0 3 * * * {RUN} --key b --no-tick\n"
    assert kinds(found(text, {"a": {}, "b": {}})) == []


def test_in_a_system_crontab_the_line_names_who_runs_it() -> None:
    """So sudo is safe on root's lines."""
    job = f"{RUN} --key k --no-tick -- sudo -u www /bin/bill\n"
    assert kinds(found(f"0 2 * * * root {job}", system=True)) == []
    assert kinds(found(f"0 2 * * * www-data {job}", system=True)) == ["sudo"]
    assert kinds(found(f"0 2 * * * {job}", user="root")) == []
    (unknown,) = found(f"0 2 * * * {job}", user=None)
    assert "unless it is root, oncecron" in unknown.message


def test_what_the_shell_of_a_crontab_leaves_alone_has_no_guard_of_it() -> None:
    """Lines that are guarded by hand have that guard, and what is of each host has none."""
    shell = "SHELL=/usr/bin/oncecron-shell\n"
    assert kinds(found(f"{shell}{line('-- a')}{line('-- b')}")) == ["shared-key"]
    assert kinds(found(f"{shell}0 3 * * * run-parts /x\n", required=True)) == ["unguarded"]
    assert kinds(found(f"{shell}ONCECRON=off\n* * * * * a\n* * * * * ONCECRON=off b\n")) == []


def derived(hour: int, added: str | None = None) -> str:
    """Return a line as wrap writes one of several with the same command; `added` to its key."""
    key = f"bill.sh-0a1b2c3d{f'.{hour:08x}' if added is None else added}"
    return (
        f"0 {hour} * * * {RUN} --key {key} --schedule '0 {hour} * * *' --tz UTC -- /bin/bill.sh\n"
    )


def test_the_keys_that_wrap_gives_one_command_on_two_lines_are_meant() -> None:
    """They differ by a digest of the schedule, and those of the very same line by a number."""
    lines = [*map(derived, (2, 3, 4)), derived(4, f".{4:08x}-2"), derived(5, "")]
    assert kinds(found("".join(lines))) == ["duplicate"]
    twice = compared("".join(lines), "".join(reversed(lines)))
    assert kinds(twice) == ["duplicate", "duplicate"]
    assert kinds(found(derived(2) + derived(2, ""))) == ["split-key", "duplicate"]


def test_other_blanks_or_quotes_give_the_key_of_the_same_command() -> None:
    """In one file, and on hosts with the one and the other."""
    texts = [
        wrap(
            scan(b"0 2 * * * %b\n" % command), WrapSettings("/usr/local/bin/oncecron", "UTC")
        ).data.decode()
        for command in (b"/bin/bill daily", b"/bin/bill  daily", b"/bin/bill 'daily'")
    ]
    assert kinds(found("".join(texts))) == ["duplicate", "duplicate"]
    assert kinds(compared(texts[0], texts[1])) == kinds(compared(texts[0], texts[2])) == []
    assert kinds(found(texts[0] + line("-- /bin/bill daily"))) == ["split-key", "duplicate"]


# Several hosts


def compared(
    first: str, second: str, names: tuple[str, str] = ("a/crontab", "b/crontab")
) -> list[Diagnostic]:
    """Return what is found in the crontabs of two hosts."""
    texts = zip(names, (first, second), strict=True)
    return lint([LintedCrontab(name, scan(text.encode())) for name, text in texts])


def test_equal_files_of_several_hosts_are_well() -> None:
    """Also where the order and the spelling differ."""
    one, other = line("-- bill 'a'"), line("--key q -- pay", "0 3 * * *")
    assert (
        compared(one + other, other + line('--tz UTC -- bill "a"').replace("--tz UTC ", "")) == []
    )


@pytest.mark.parametrize(
    ("first", "second", "place", "words"),
    [
        (line("-- bill"), GUARDED, ("a/crontab", 1, "missing"), "`bill` is not in b/crontab"),
        ("0 2 * * * pay\n", GUARDED, ("b/crontab", 1, "missing"), "not in a/crontab"),
        (line("-- bill"), line("--key q -- bill"), ("b/crontab", 1, "split-key"), "key q here and k in a/crontab, line 1"),
        (line("-- bill"), line("-- pay"), ("b/crontab", 1, "shared-key"), "the key of `bill` in a/crontab, line 1"),
        (line("-- bill"), line("-- bill", "0 3 * * *"), ("b/crontab", 1, "schedule"), "at 0 3 * * * here and at 0 2 * * *"),
        (
            *(line("--tz UTC -- bill"), line("--tz Asia/Tokyo -- bill"), ("b/crontab", 1, "schedule")),
            "0 2 * * * Asia/Tokyo here and at 0 2 * * * UTC",
        ),
        (line("-- bill"), "\n0 2 * * * bill\n", ("b/crontab", 2, "unguarded"), "uses oncecron in a/crontab, line 1"),
        ("\n0 2 * * * bill\n", line("-- bill"), ("a/crontab", 2, "unguarded"), "uses oncecron in b/crontab, line 1"),
    ],
)  # fmt: skip
def test_hosts_differ(first: str, second: str, place: tuple[str, int, str], words: str) -> None:
    """In the jobs that they have, in guards, keys, schedules and zones."""
    made = {(each.file, each.line, each.finding): each for each in compared(first, second)}
    assert place in made
    assert words in made[place].message
    assert made[place].cure


@pytest.mark.parametrize("swapped", [False, True])
def test_hosts_differ_in_one_of_several_lines_of_a_command(swapped: bool) -> None:
    """Whichever file comes first: a line that one of them lacks, and keys of one line that differ."""
    for one, other, made in (
        (derived(2) + derived(3), derived(3), {"missing"}),
        (derived(2) + derived(3), derived(3, ""), {"missing", "split-key"}),
        (derived(2, "") + derived(3), derived(3, "") + derived(2), {"split-key"}),
    ):
        findings = compared(other, one) if swapped else compared(one, other)
        assert set(kinds(findings)) == made
        missing = [each for each in findings if each.finding == "missing"]
        assert all("at 0 2 * * * UTC is not in" in each.message for each in missing)


def test_each_on_several_hosts() -> None:
    """Another list is another job; equal lines are well; the number of slots is that of all hosts."""
    pytest.importorskip("oncecron_each")
    one = each("--slots 2 -- a {}")
    assert kinds(compared(one, one)) == []
    assert kinds(compared(one, each("--slots 3 -- a {}"))) == ["shards"]
    assert set(kinds(compared(one, each("--slots 2 --items c -- a {}")))) == {
        "missing",
        "shared-key",
    }
    assert kinds(compared(one, each("--slots 2 --tz UTC -- a {}"))) == ["schedule"]


def test_only_files_of_one_name_are_compared() -> None:
    """Those of other names belong to one host; unless it is said that they do not."""
    names = ("cron.d/bill", "cron.d/pay")
    assert compared(line("-- bill"), line("--key q -- pay"), names) == []
    sources = [
        LintedCrontab(name, scan(line(f"--key {name[-1]} -- {name}").encode())) for name in names
    ]
    assert kinds(lint(sources, compared=True)) == ["missing", "missing"]


def test_a_wrapped_test_is_compared_as_it_was() -> None:
    """With the line that another host has not wrapped yet."""
    for plain in ("[ -x /a ] && bill  'x'", "[ -x /a ]&&bill", "if [ -x /a ]; then bill; fi"):
        data = f"0 2 * * * {plain}\n"
        guarded = wrap(
            scan(data.encode()), WrapSettings("/usr/local/bin/oncecron", "UTC")
        ).data.decode()
        assert "--only-if '[ -x /a ]'" in guarded
        assert kinds(compared(guarded, guarded)) == []
        assert kinds(compared(guarded, data))[0] == "unguarded"


def test_what_is_each_host_s_own_is_not_compared() -> None:
    """Nor what somebody has marked."""
    own = "@reboot x\n0 3 * * * run-parts y\n# oncecron: off\n0 4 * * * z\n"
    assert compared(line("-- bill") + own, line("-- bill")) == []


# Files that cron does not read


@pytest.mark.parametrize(
    ("path", "link", "is_read"),
    [
        ("/etc/cron.d/app-1_x", None, True),
        ("/etc/cron.d/app.sh", None, False),
        ("/srv/app.txt", "/etc/cron.d/app", True),
        ("/srv/app", "/etc/cron.d/app.txt", False),
        ("/srv/cron.d/app.cron", None, False),
        ("/srv/app.cron", None, True),
        ("/srv/all.txt", "/etc/crontab", True),
    ],
)
def test_a_file_is_judged_by_the_name_that_cron_finds(
    path: str, link: str | None, is_read: bool
) -> None:
    """As Debian's cron does, wherever its directory lies."""
    why = CrontabFile(path, b"", None, named=link).not_read()
    assert (why is None) == is_read
    source = LintedCrontab("c", scan(b"0 2 * * * root /bin/a\n", system=True), not_read=why)
    assert kinds(lint([source])) == ([] if is_read else ["not-read"])


def test_a_link_is_read_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links above it are resolved, so that it is known however it is named."""
    for name in ("above", "real"):
        (tmp_path / name).mkdir()
    (tmp_path / "real" / "file").write_text("0 2 * * * /bin/a\n")
    (tmp_path / "above" / "link").symlink_to("../real/file")
    (tmp_path / "other").symlink_to("above")
    monkeypatch.setattr("oncecron_crontab.cli.files.SYSTEM_DIRECTORY", str(tmp_path / "above"))
    for name in ("other/link", "above/link"):
        file = read_source([str(tmp_path / name)])
        assert (file.path, file.place) == (
            str(tmp_path / "real/file"),
            str(tmp_path / "above/link"),
        )
    file = read_source([str(tmp_path / "real" / "file")])
    assert file.place == file.path


# Zones of crons


def test_a_zone_that_the_cron_reads_is_that_of_the_schedule() -> None:
    """Cronie fires the lines below CRON_TZ in that zone."""
    text = "CRON_TZ=Asia/Tokyo\n" + line("--tz {} -- bill")
    for zone, made in (("Asia/Tokyo", []), ("UTC", ["zone"])):
        source = LintedCrontab("crontab", scan(text.format(zone).encode()))
        assert kinds(lint([source], cron=CRONS["cronie"])) == made
        assert kinds(lint([source])) == ["zone"]
    bare = LintedCrontab("crontab", scan(b"CRON_TZ=Asia/Tokyo\n" + line("-- bill").encode()))
    (made_of_bare,) = lint([bare], cron=CRONS["cronie"])
    assert made_of_bare.cure == "use --tz Asia/Tokyo"


def test_hosts_with_different_stores_do_not_exclude_each_other() -> None:
    """With the same key; a password is not shown."""
    texts = [line(f"--store postgresql://u:hunter2@{host}/d -- bill") for host in ("one", "other")]
    made = compared(*texts)
    assert kinds(made) == ["store"]
    assert "hunter2" not in repr(made)
    local = line("--store local -- bill")
    assert kinds(compared(local, local)) == ["store", "store"]
    assert "store" not in kinds(compared(texts[0], texts[0]))
    assert kinds(found(line("--store local -- bill"))) == []


# Sections of the configuration that no line uses


def unused(sections: str, *texts: str, user: str | None = "joe") -> list[tuple[int, str]]:
    """Return line and cure of each section that the crontabs do not use."""
    jobs = tomllib.loads(sections)["job"]
    sources = [
        LintedCrontab(f"crontab{number}", scan(text.encode()), user)
        for number, text in enumerate(texts)
    ]
    made = lint(sources, jobs, configuration=("oncecron.toml", sections))
    assert [each.file for each in made if each.finding == "section"] == [
        each.file for each in made if each.file == "oncecron.toml"
    ]
    return [(each.line, each.cure) for each in made if each.finding == "section"]


def of_key(key: str) -> str:
    """Return a line of a crontab with a guard of this key."""
    return f"0 2 * * * {RUN} --key {key} --no-tick -- bill\n"


SECTIONS = """grace = "5s"
[job.bill]
timeout = "1h"
[ job . "pay.sh" ]
timeout = "1h"
"""


def test_a_section_that_no_line_uses_is_found() -> None:
    """With its line, in all crontabs together; one that a file uses is none."""
    assert [number for number, _ in unused(SECTIONS, of_key("bill"))] == [4]
    assert [number for number, _ in unused(SECTIONS, "0 2 * * * a\n")] == [2, 4]
    assert unused(SECTIONS, of_key("bill"), of_key("pay.sh")) == []
    assert unused("job.bill.timeout = 1\n", of_key("other")) == [(1, CURE)]


CURE = "correct the key, or remove the section; if another crontab has this key, name that file too"


def test_a_key_that_looks_alike_is_named() -> None:
    """So that a typing mistake is seen at once."""
    ((number, cure),) = unused('[job.bil]\ntimeout = "1h"\n', of_key("bill"))
    assert number == 1
    assert cure.startswith("did you mean bill? Correct the key, or")


def test_no_section_is_unused_without_a_configuration_that_is_named() -> None:
    """The usual file of a host may be for other crontabs too."""
    sources = [LintedCrontab("crontab", scan(of_key("bill").encode()))]
    assert kinds(lint(sources, {"pay": {"timeout": "1h"}})) == []


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (of_key("$JOB"), False), (of_key("`cat /etc/job`"), False), (of_key('"a$(date)"'), False),
        ("JOB=pay.sh\n" + of_key("$JOB"), True), ("JOB=pay.sh\n" + of_key('"${JOB}"'), True),
        ("JOB=$OTHER\n" + of_key("$JOB"), False), (f"0 2 * * * {RUN} --key auto -- ~/bill\n", False),
        (f"0 2 * * * {RUN} --key auto -- /srv/bill --all\n", True),
        (f"0 2 * * * {RUN} --nonsense --key a -- bill\n", False),
        (f"0 2 * * * {RUN} --key a -- 'bill\n", False),
    ],
)  # fmt: skip
def test_nothing_is_said_of_sections_if_a_key_is_not_known(text: str, known: bool) -> None:
    """A variable of the crontab has a value; the shell's variables and substitutions have not."""
    made = unused("[job.bill]\n[job.never]\n", of_key("bill") + text)
    assert [number for number, _ in made] == ([2] if known else [])


def test_a_derived_key_uses_its_section() -> None:
    """That of --key auto and of oncecron-shell; of an unknown user's, each user's section."""
    plain, of_user = derived_key(b"/bin/bill"), derived_key(b"~/bill", None, lambda: "joe")
    sections = f'[job.{plain}]\n[job."{of_user}"]\n[job.a]\n'
    auto = f"0 2 * * * {RUN} --key auto --no-tick"
    for text in (
        f"{auto} -- /bin/bill\n{auto} --shell ~/bill\n",
        "SHELL=/x/oncecron-shell\n0 2 * * * /bin/bill\n0 3 * * * ~/bill\n",
    ):
        assert [number for number, _ in unused(sections, text)] == [3]
        assert [number for number, _ in unused(sections, text, user=None)] == [3]
        assert [number for number, _ in unused(sections, text, user="ann")] == [2, 3]


# No false alarm


@pytest.mark.parametrize("path", DEBIAN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nothing_is_found_in_the_cron_files_of_debian_s_packages(path: Path) -> None:
    """One that is kept beside the tests, and those that are installed here."""
    crontab = scan(path.read_bytes(), system=True)
    assert list(crontab.entries())
    assert lint([LintedCrontab(str(path), crontab)]) == []


ALIKE = r"""
SHELL=/bin/sh
PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin
MAILTO=root
DEFAULT=/etc/default/program
NICE=10
57 0 * * 0 root if [ -x /bin/check ] && [ $(date +\%d) -le 7 ]; then /bin/check --all --quiet; fi
30 7-23 * * *   root	[ -x /etc/x ] && if [ ! -d /run/systemd/system ]; then /usr/sbin/x start >/dev/null; fi
30 3 * * 0 root test -e /run/systemd/system || MODE=1 /usr/lib/x/run
5-55/10 * * * * root command -v sa1 > /dev/null && sa1 1 1
*/5 * * * * www-data php /usr/share/x.php 2>&1 >/dev/null | if [ -f /bin/ts ] ; then ts ; else tee ; fi >> /var/log/x
0 * * * *      root    test -x /bin/x && { [ -r "$DEFAULT" ] && . "$DEFAULT" ; nice -n$NICE /bin/x -q ; }
27 03 * * *  x  dir=$({ cat /etc/x.conf /etc/x/* 2>/dev/null || true; } | sed -nE 's/^\s*a\s+(\S.*)$/\1/p' | tail -1); find "$dir/" -type f -delete
0 */12 * * * root test -x /usr/bin/x -a \! -d /run/systemd/system && perl -e 'sleep int(rand(43200))' && x -q renew
@reboot         x    if [ -x /bin/x ]; then nice -n10 /bin/x -R; fi
25 6	* * *	root	test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }
"""


def test_nothing_is_found_in_lines_like_those_of_debian_s_packages() -> None:
    """Constructions of packages whose licence keeps their files from being kept here."""
    assert found(ALIKE, system=True) == []


def test_a_secret_is_never_shown() -> None:
    """Nor in the messages of other findings."""
    open_quote = "a --password=hunter2 'x"
    secrets = (
        open_quote, "a --password=hunter2", "DB_PASSWORD=hunter2 a", "a p://u:hunter2@h",
        "sh -c 'a p://u:hunter2@h'", "sudo -u x nice -n 9 mysqldump -phunter2",
        "flock /x -c 'mysqldump -phunter2'", "a=`mysqldump -phunter2 b`",
        "a --password=hunter2 --token=hun'ter'2",
    )  # fmt: skip
    for command in secrets:
        text = f"0 2 * * * {command}\n" + line(f"-- {command} && {command}")
        made = found(text) + compared(text, GUARDED)
        assert "***" in repr(made)
        assert "hunter2" not in repr(made)


def test_substitutions_may_nest_as_deeply_as_a_line_allows() -> None:
    """A thousand brackets are none too many."""
    assert kinds(found(f"0 2 * * * {'$(' * 330}x{')' * 330}\n")) == []


PIECES = (
    *"ab $;&|()<>{}'\"`\\%=#\t\r\xff",
    *("$(", "${", "&&", "||", ">>", "2>&1", "--", " if ", " then ", " sh -c ", "sudo ", "sleep "),
    *(" oncecron run ", " --key k ", "--shell "),
)
COMMANDS = st.lists(st.sampled_from(PIECES), max_size=14).map(
    lambda pieces: "".join(pieces).encode("latin-1")
)


@given(st.lists(lines(COMMANDS), max_size=5), st.booleans())
def test_any_bytes_can_be_linted(texts: list[bytes], system: bool) -> None:
    """Nothing is raised, and a finding is on a line of the file."""
    crontab = scan(b"\n".join(texts), system=system)
    for each in lint([LintedCrontab("t", crontab)], required=True):
        assert 1 <= each.line <= len(crontab.lines)
        assert each.finding in FINDINGS


def test_a_message_is_one_line() -> None:
    """Whatever stands in the crontab, and not longer than can be read."""
    for _, has, *_ in CASES:
        for each in found(has):
            assert re.fullmatch(r"[^\n]{1,200}", each.message), each
            assert re.fullmatch(r"[^\n]{1,250}", each.cure), each


GUARDED = "SHELL=/usr/local/bin/oncecron-shell\n@daily /opt/poll\n"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (GUARDED, GUARDED, True),
        (GUARDED, f"ONCECRON_KEY_PREFIX=b.\n{GUARDED}", False),
        (GUARDED, GUARDED.replace("/opt/poll", "~/poll"), False),
        (f"{GUARDED}@weekly ~/x\n", GUARDED.replace("/opt/poll", "~/x"), False),
    ],
)
def test_two_users_of_one_host_share_a_derived_key(first: str, second: str, *, same: bool) -> None:
    """Then only one of them runs the command; the files of a directory are of one host."""
    expected = ["shared-key"] if same else []

    def shared(*names: str, users: tuple[str, ...] = ("a", "b"), **options: bool) -> list[str]:
        texts = zip(names, users, (first, second), strict=True)
        sources = [LintedCrontab(name, scan(text.encode()), user) for name, user, text in texts]
        return [each for each in kinds(lint(sources, **options)) if each == "shared-key"]

    assert shared("spool/a", "spool/b") == expected
    assert shared("web1/a", "web2/b") == []
    assert shared("spool/a", "spool/b", compared=True) == []
    assert shared("spool/a", "spool/b", users=("a", "a")) == []


def test_two_users_of_one_system_crontab_share_a_derived_key() -> None:
    """Wrap makes the keys differ there; oncecron-shell sees one line only. A key of a person is meant."""
    text = "SHELL=/usr/local/bin/oncecron-shell\n@daily a /opt/poll\n@daily b /opt/poll\n"
    assert kinds(found(text, system=True)) == ["shared-key"]
    run = "/usr/local/bin/oncecron run --key poll --schedule @daily -- /opt/poll"
    assert found(f"@daily a {run}\n@daily b {run}\n", system=True) == []
