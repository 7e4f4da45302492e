"""Keys that are derived from commands: the same on every host, and readable in the log."""

import re
from pathlib import Path

import pytest
from crontabs import EXAMPLES, commands
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecron.config.options import is_key
from oncecron.core import launchers
from oncecron.core.derived_key import derived_key
from oncecron.core.launchers import entry_of
from oncecron.core.shell_words import canonical, simple_words

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "crontabs.md"

# These never change: a host that derives another key from the same line runs another job.

KEYS = {
    "/opt/app/bill.sh --all": "bill.sh-a2cc2be4",
    "./bill.sh": "ann.bill.sh-e7244479",
    "cd /app && ./bill.sh >>log 2>&1": "bill.sh-d36a38b7",
    "nice -n 19 ionice -c3 restic backup /": "restic-backup-8cf7e0ff",
    "flock -w 10 /run/x -c 'cd /srv && ./import.py'": "import.py-9bbcd8cc",
    "timeout -k 5s 60s sudo -u www-data php artisan schedule:run": "ann.artisan-schedule-run-d92a537a",
    "MAILTO=x A=1 env -i B=2 python3 -m app.job": "ann.app.job-611c10de",
    "[ -x /usr/lib/a ] && if [ ! -d /run ]; then /usr/lib/b/clean; fi": "clean-73fb540b",
    'for f in *.csv; do ssh host load "$f"; done': "ssh-68c57f20",
    "bash -l -c 'cd /app && bundle exec rake x'": "rake-x-a835e628",
    "sleep $((RANDOM % 60)); $HOME/bin/sync": "ann.sync-c7944763",
    "$CMD": "job-48ae602d",
    "test -e /run/systemd/system || A=1 /usr/lib/e2scrub_all_cron": "e2scrub_all_cron-d6164afb",
    "test -x /usr/bin/certbot -a ! -d /run/systemd && perl -e 'sleep 9'; certbot renew": "certbot-renew-0c6a8194",
    "test -d /srv || sh -c ./make.sh": "ann.make.sh-1b4ed099",
    ">/dev/null 2>&1 ./quiet.sh": "ann.quiet.sh-84ea6055",
    "runuser -l www -c ./bill.sh": "ann.bill.sh-41f43361",
    "su - www -c 'php bill.php'": "ann.bill.php-20e7e311",
    "su -s /bin/sh -c './bill.sh --all' www": "ann.bill.sh-5de98b57",
    "/srv/Büro/lösch.sh": "l-sch.sh-a576e8b5",
    "/bin/" + "x" * 60: "x" * 40 + "-d5826d7a",
    "'/opt/my app/run'": "run-d435c7d1",
    "": "job-00000000",
}


@pytest.mark.parametrize(("command", "key"), KEYS.items())
def test_a_derived_key_never_changes(command: str, key: str) -> None:
    """Not from one version to the next, whatever could be named better."""
    assert derived_key(command.encode(), None, lambda: "ann") == key


def test_the_documentation_shows_keys_that_are_derived() -> None:
    """Of commands of ann."""
    rows = re.findall(r"^\| `(.+?)`[^|]* \| `(.+)` \|$", DOCUMENTATION.read_text(), re.MULTILINE)
    assert len(rows) == 4
    for command, key in rows:
        assert derived_key(command.encode(), None, lambda: "ann") == key


NAMES = {
    # launchers
    "nice -n 19 x": "x", "nice -19 x": "x", "/usr/bin/nice x": "x",
    "ionice -c2 -n 7 x": "x", "ionice -c 2 -n7 x": "x", "chrt -i 0 x": "x",
    "timeout 1h x": "x", "timeout -k5s 60 x": "x", "timeout --signal=KILL 60 x": "x", "timeout -s KILL 60 x": "x",
    "env -i A=1 x": "x", "env -u A x": "x", "env -S 'A=1 x y'": "x", "A='b c' B=2 x": "x",
    "sudo -u www x": "x", "sudo -nu www x": "x", "sudo --user www x": "x", "sudo -u www -- x": "x", "sudo -E x": "x",
    "su - www -c 'x y'": "x", "su www -c x": "x", "su -c x www": "x", "su -s /bin/sh www -c x": "x",
    "runuser -u www -- x": "x", "runuser -u www x": "x", "runuser www -c 'x y'": "x", "runuser -l www -c x": "x",
    "systemd-run --scope -p MemoryMax=1G --unit b x": "x", "systemd-cat -t bill x": "x",
    "docker exec -i -u www app x": "x", "docker exec app sh -c 'cd /srv && x y'": "x",
    "docker-compose -f /srv/c.yml exec -T app php artisan schedule:run": "artisan-schedule-run",
    "docker compose -p shop exec -T app x": "x", "podman exec app x": "x", "kubectl -n prod exec app -- x": "x",
    "chronic x": "x", "cronic x": "x", "chronic -ev x": "x", "nohup x": "x", "setsid x": "x", "time x": "x",
    "runitor -uuid 2f9c -every 1m -- x": "x", "runitor -slug bill -no-start-ping -- x y": "x",
    "cronitor exec d3x0c1 x y": "x", "cronitor -k secret exec d3x0c1 'x y'": "x",
    "sentry-cli monitors run bill -- x": "x", "xvfb-run -a -s '-screen 0 1x1x24' x": "x",
    "chroot /srv x": "x", "taskset -c 0,1 x": "x", "stdbuf -oL x": "x", "eval 'x y'": "x", "exec x": "x",
    # lockers
    "flock -n /run/x x": "x", "flock -xnE 5 /run/x x": "x", "flock -w10 /run/x x": "x", "flock /run/x -c 'x y'": "x",
    "(flock -n 9 || exit 1; x) 9>/run/x": "x",
    "lockf -t 0 /run/x x": "x", "lockf -kst0 /run/x x": "x", "setlock -nX /run/x x": "x",
    "lockrun --lockfile=/run/x -- x": "x", "lckdo -w -W 5 /run/x x": "x", "run-one x": "x", "run-this-one x": "x",
    "with-lock-ex -q /run/x x": "x", "cronlock x": "x", "solo -port=3801 x": "x", "sem --id b x": "x",
    "consul lock cron/x x": "x", "consul lock -n 1 -timeout=5s cron/x 'x y'": "x", "etcdctl lock b x": "x",
    "runlock -f /run/x x": "x",
    # interpreters
    "php -d memory_limit=-1 -f /srv/x": "x", "php8.2 /srv/x": "x", "/usr/bin/php7.4-cgi /srv/x": "php7.4-cgi",
    "python3.11 -u /srv/x": "x", "python -W ignore -m x": "x", "perl -I lib /srv/x": "x", "ruby -r set /srv/x": "x",
    "node --max-old-space-size=1 /srv/x": "x", "java -Xmx1g -cp a.jar x": "x", "java -jar x": "x",
    "bash -lc 'cd /srv && x'": "x", "bash -o pipefail -c x": "x", "sh /srv/x": "x", "python -c 'x y'": "python",
    "php -r 'x();'": "php", "perl -e 'sleep rand 9'; x": "x", "bundle exec x": "x", "uv run x": "x",
    # consoles
    "php /srv/artisan schedule:run -q": "artisan-schedule-run",
    "php /srv/artisan -q queue:work a": "artisan-queue-work",
    "php /srv/bin/console -e prod app:x": "console-app-x", "/srv/bin/console app:x --env=prod": "console-app-x",
    "python /srv/manage.py clearsessions": "manage.py-clearsessions", "/srv/manage.py --settings a.b x": "manage.py-x",
    "manage.py": "manage.py", "manage.py && x": "manage.py", "manage.py >log": "manage.py", "manage.py /x": "manage.py",
    "django-admin x": "django-admin-x",
    "rake billing:run[1,2]": "rake-billing-run", "bundle exec rake -f /srv/R x RAILS_ENV=p": "rake-x",
    "rails runner -e production Import.run": "rails-runner-Import.run", "rails runner 'a.b(1)'": "rails-runner",
    "bin/rails db:x": "rails-db-x", "wp --path=/srv cron event run --due-now": "wp-cron-event-run",
    "npm run build": "npm-run-build", "npm --prefix /srv run build": "npm", "make -C /srv x": "make-x",
    "docker login -u x -p hunter2": "docker-login", "docker run --rm img x": "docker-run",
    "aws --profile x s3 sync /a s3://b": "aws-s3-sync", "aws configure set k hunter2": "aws-configure-set",
    # what is not a program
    "cd /srv; x": "x", "cd /srv || exit; x": "x", ". /srv/env && x": "x", "source /srv/env; x": "x",
    "export A=1; x": "x",
    "set -e; x": "x", "umask 077; x": "x", "ulimit -n 9; x": "x", "sleep 9; x": "x", "sleep $((RANDOM % 60)) && x": "x",
    "sleep `shuf -i 0-9 -n 1`; x": "x", "test -x /srv/y && x": "x", "[ -x /srv/y ] || x": "x",
    "[[ -e y && -e z ]] && x": "x",
    "command -v y >/dev/null && x": "x", "if [ -e y ]; then x; fi": "x", "! x": "x", "{ x; }": "x", "(x)": "x",
    "while read -r y; do x; done </srv/z": "x", "for y in z; do x; done": "x", "case $(date) in y) x;; esac": "x",
    "echo y; x": "x", "echo y | x": "x", ">y x": "x", "x # y": "x", "$X x": "x", "${X:-/y/z} x": "x",
    "$(which y) x": "x",
    "`which y` x": "x", "$X/x": "x", "$(dirname /y/z)/x": "x", "~/x": "x",
    # nothing else
    "sleep 9": "sleep", "cd /srv": "cd", "echo x": "echo", "sudo -i": "sudo", "A=1": "job", "$X": "job",
    "[ -e x ]": "job",
    # an open quote
    "x 'y": "x", 'nice x "y': "x",
}  # fmt: skip


@pytest.mark.parametrize(("command", "name"), NAMES.items())
def test_launchers_are_seen_through(command: str, name: str) -> None:
    """And a console has its words in the name."""
    assert derived_key(command.encode()).rpartition("-")[0] == name


def test_blanks_and_quotes_do_not_count_where_no_shell_is_needed() -> None:
    """Around any command, and between the words of a simple one; a system crontab keeps some in front."""
    assert derived_key(b"  x y\t") == derived_key(b"x y") == derived_key(b"x  'y'")
    assert derived_key(b" x; y ") == derived_key(b"x; y") != derived_key(b"x;  y")


@pytest.mark.parametrize(
    "command",
    [
        *("~/bin/x", "$HOME/bin/x", "${HOME}/bin/x", '"$HOME/bin/x"', "/bin/x >>~/log", "/bin/x --to=~/y", "x ~"),
        *("cd && x", "cd ~ && x", "cd $HOME; x", "cd app && x", "cd -P app && php artisan x", "/bin/x $USER"),
        *("./x", "bin/x", "nice bin/x", "sh -c './x y'", "php artisan x", "python backup.py", "bash x.sh"),
        *("./venv/bin/python /srv/x.py", "/bin/a; ./b", "flock -n /run/x bin/x", "/bin/x ${LOGNAME:-y}"),
    ],
)  # fmt: skip
def test_a_command_below_the_home_directory_has_the_user_s_name(command: str) -> None:
    """The same line of two users is two jobs; a prefix takes the name's place, also an empty one."""
    keys = [derived_key(command.encode(), None, lambda name=name: name) for name in ("ann", "bob")]  # type: ignore[misc]
    bare = derived_key(command.encode(), "")
    assert keys == [f"ann.{bare}", f"bob.{bare}"]
    assert derived_key(command.encode(), "x/", lambda: "ann") == f"x/{bare}"


@pytest.mark.parametrize(
    "command",
    [
        *("/usr/local/bin/x", "x", "cd /srv && ./x", "cd $APP && ./x", 'cd "$(dirname /a/b)" && php artisan x'),
        *("python /srv/x.py", "bash -c 'cd /srv; ./x'", "x ~bob/y", "/bin/x $HOMEPAGE $USERS", "sed s/~//g /srv/x"),
        *("x host:~/y", "x a~", "docker exec app ./x", "sh -c x", "docker compose exec app php artisan x"),
    ],
)  # fmt: skip
def test_any_other_command_has_one_key_for_all_users(command: str) -> None:
    """It is the same file for each."""
    assert derived_key(command.encode(), None, lambda: "ann") == derived_key(command.encode(), "")


def test_a_user_whose_name_no_key_can_have() -> None:
    """Has one with dashes."""
    assert derived_key(b"~/x", None, lambda: "EX\\jörg$").startswith("EX-j-rg.x-")


SECRET_FREE = [
    *("PGPASSWORD='hunter2 b' bill", "PGPASSWORD=\"a hunter2\"'x hunter2' bill", "P=a\\ hunter2 bill"),
    *("sh -c 'X=\"a hunter2\" bill'", "sh -c \"X='a hunter2' bill\"", 'sh -c "X=\\"a hunter2\\" bill"'),
    *("sh -c 'X='\\''a hunter2'\\'' bill'", "export X='hunter2 b'; bill", "X='hunter2;b' Y='&hunter2' bill"),
    *("sudo -p hunter2 bill", "env X='a hunter2' bill", "cronitor -k hunter2 exec hunter2 bill"),
]  # fmt: skip


@pytest.mark.parametrize("command", SECRET_FREE)
def test_a_derived_key_has_no_part_of_a_value(command: str) -> None:
    """It is in every record, and in the mails of cron."""
    assert derived_key(command.encode()).startswith("bill-")


@given(
    st.one_of(
        st.binary(),
        commands(),
        st.lists(st.sampled_from(sorted(NAMES))).map(lambda all_: " ".join(all_).encode()),
    )
)
@settings(max_examples=EXAMPLES)
def test_every_command_has_a_key(command: bytes) -> None:
    """One that a store takes, the same for each way to write the command."""
    key = derived_key(command, None, lambda: "ann")
    assert is_key(key)
    assert derived_key(command, "alice.").startswith("alice.")
    assert derived_key(canonical(command), None, lambda: "ann") == key
    if words := simple_words(command):
        assert simple_words(canonical(command)) == words


def test_the_table_has_its_programs_once() -> None:
    """A later line would replace an earlier one."""
    lines = launchers._TABLE.decode().strip().splitlines()
    names = [
        name for line in filter(None, lines) for name in re.split(" [>@<:] ", line)[0].split("|")
    ]
    assert len(names) == len(set(names)) > 100
    assert not {name.encode() for name in names} & launchers.NO_PROGRAMS
    assert all(entry_of(name.encode()) for name in names)
