"""Launchers, which run another program, and consoles, whose first words say what they do.

One line for each, in the form of `_TABLE`:

    NAME[|NAME...]   a path of words: `docker exec` is read after `docker`
    > N              a launcher: N of its words come before the program that it runs
    @ N              the same, but the program runs in another directory, as in a container
    < N              an interpreter: the same, and the program is a file
    : N              a console: N of its words are part of the key
    -o= --option=    options whose value is the next word, unless it is attached
    -o!              an option after which a string with a command is next
    -o=!             an option with a value, after which the program is next
    --!              the program follows `--`, whatever is before it

A one-letter option is also found at the end of several: `-lc`. Names are looked up without their directory and without
the version at the end: `/usr/bin/php8.2` is `php`.

Derived keys depend on this table, so after a release no line of it may change.
"""

from __future__ import annotations

from oncecron.core.light_typing import NamedTuple

NO_PROGRAMS = frozenset(
    b"""
    [ [[ test : true false . source cd chdir pushd popd export declare typeset local readonly unset set shopt setopt
    alias unalias umask ulimit trap wait read shift exit return break continue echo printf sleep type which hash fi done
    esac
    """.split()
)
"""Builtins that run no program: `cd /srv`, `test -e FILE`. They name a command only where nothing else does."""

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = b"0123456789"
_SUBCOMMAND_LETTERS = frozenset(_LETTERS + _DIGITS + b"._:-")
_CLOSING = (b")", b"}", b"`")
_TABLE = b"""
!|{|}|builtin|coproc|do|elif|else|eval|exec|if|nocorrect|noglob|then > 0
command > 0 -v= -V=
nohup|setsid|busybox|chronic|cronic|eatmydata|fakeroot|torsocks|dbus-run-session|linux32|linux64 > 0
nice > 0 -n= --adjustment=
ionice > 0 -c= -n= --class= --classdata=
chrt > 1 -T= -P= -D=
taskset|setarch|setuidgid|envuidgid|envdir|gosu|su-exec|s6-setuidgid|logsave > 1
cpulimit > 0 -l= --limit=
softlimit > 0
stdbuf > 0 -i= -o= -e=
timeout > 1 -s= --signal= -k= --kill-after=
time > 0 -f= --format= -o= --output=
env > 0 -u= --unset= -C= --chdir= -S!
sudo > 0 -u= --user= -g= --group= -h= --host= -p= --prompt= -C= -D= --chdir= -R= --chroot= -r= -t= -T=
doas > 0 -u= -C=
su > 1 -s= --shell= -g= --group= -G= --supp-group= -w= --whitelist-environment= -c! --command!
runuser > 1 -s= --shell= -g= --group= -G= --supp-group= -w= -c! --command! -u=! --user=! -l=
chpst > 0 -u= -U= -b= -e= -/= -n= -l= -L= -m= -d= -o= -p= -f= -c=
chroot @ 1 --userspec= --groups=
unshare|nsenter @ 0 -t= --target= -S= -G= --setuid= --setgid=
setpriv > 0 --reuid= --regid= --groups= --inh-caps= --bounding-set= --ambient-caps=
prlimit > 0
systemd-run @ 0 -u= --unit= -p= --property= --description= --slice= -E= --setenv= -M= --machine= -H= --host=
systemd-cat > 0 -t= --identifier= -p= --priority= --stderr-priority=
systemd-inhibit > 0
unbuffer > 0
xvfb-run > 0 -e= -f= -n= -p= -s= --error-file= --auth-file= --server-num= --server-args=

flock > 1 -w= --wait= --timeout= -E= --conflict-exit-code= -c! --command!
lockf > 1 -t=
setlock > 1
lockrun > 0 --lockfile= -L= --maxtime=
lckdo > 1 -W= -E=
run-one|run-this-one|run-one-constantly|run-one-until-success|run-one-until-failure|keep-one-running > 0
with-lock-ex > 1
cronlock > 0
solo > 0
sem > 0 --id= --timeout= -j= --jobs=
runlock|runstat > 0 -f= -t=
runalarm > 0 -t=
consul : 1
consul lock > 1 -pass-stdin -n= -name= -timeout= -monitor-retry= -token= -http-addr= -datacenter=
etcdctl : 1 --endpoints= --user=
etcdctl lock > 1 --ttl=

runitor > 0 -uuid= -slug= -ping-key= -api-url= -api-retries= -api-timeout= -ping-body-limit= -every= -on-success= --!
cronitor : 1 -k= --api-key= -c= --config= --env= -n= --hostname=
cronitor exec > 1
sentry-cli : 1 --auth-token= --url=
sentry-cli monitors : 1
sentry-cli monitors run > 1 -e= --environment= --!

docker|podman : 1 -H= --host= --context= -c= --config= -l= --log-level=
docker run|podman run : 0
docker exec|podman exec @ 1 -e= --env= --env-file= -u= --user= -w= --workdir= --detach-keys=
docker container|docker system|docker image|docker volume|podman container|podman system|podman image|podman volume : 1
docker container exec|podman container exec @ 1 -e= --env= --env-file= -u= --user= -w= --workdir= --detach-keys=
docker compose|docker-compose|podman compose|podman-compose : 1 -f= --file= -p= --project-name= --profile= --env-file=
docker compose exec|docker-compose exec @ 1 -e= --env= -u= --user= -w= --workdir= --index=
podman compose exec|podman-compose exec @ 1 -e= --env= -u= --user= -w= --workdir= --index=
docker compose run|docker-compose run @ 1 -e= --env= -u= --user= -w= --workdir= --name= -v= --volume= -p= --publish=
podman compose run|podman-compose run @ 1 -e= --env= -u= --user= -w= --workdir= --name= -v= --volume= -p= --publish=
kubectl : 2 -n= --namespace= --context= --kubeconfig= -s=
kubectl exec @ 1 -n= --namespace= --context= -c= --container= --!
lxc : 1
lxc exec @ 1 --cwd= --env= --user= --group= --mode=
lxc-attach @ 0 -n= --name= -v= -u= -g=

sh|bash|dash|ash|ksh|zsh < 0 -c! -o= -O= --rcfile= --init-file=
python < 0 -c= -W= -X=
php|php-cli|php-cgi < 0 -d= -c= -r= -z= -B= -R= -E=
perl < 0 -e= -E= -I=
ruby < 0 -e= -I= -r= -C= -E=
node|nodejs < 0 -e= --eval= -p= --print= -r= --require=
java < 0 -cp= -classpath= --class-path= --module-path=
Rscript < 0 -e=
bundle : 1
bundle exec > 0
rbenv|pyenv|asdf|direnv|npm|pnpm|yarn|uv|poetry|pipenv|conda|doppler|op|aws-vault|chamber : 1
rbenv exec|pyenv exec|asdf exec > 0
direnv exec > 1
npx > 0 -p= --package= -c! --call!
npm exec|pnpm exec|yarn exec > 0 -c!
npm run|pnpm run|yarn run : 1
uv run > 0 -p= --python= --with= --project= --directory= --env-file= --extra= --group=
poetry run|pipenv run > 0
conda run > 0 -n= --name= -p= --prefix= --cwd=
doppler run > 0 -p= --project= -c= --config= -t= --token= --!
op run > 0 --env-file= --account= --!
aws-vault exec|chamber exec > 1 -d= --duration= --!
dotenv > 0 -f= --file=

artisan|console : 1 -e= --env=
manage.py|django-admin : 1 --settings= --pythonpath= -v= --verbosity=
rake|gitlab-rake : 1 -f= --rakefile= -C= --directory= -I= -r=
thor|mix|yii|cake|craft|occ|magento|flask : 1
composer : 1 -d= --working-dir=
drush : 1 -r= --root= -l= --uri=
rails : 1 -e= --environment=
rails runner : 1 -e= --environment=
wp : 1 --path= --url= --user=
wp cron|wp core|wp plugin|wp theme|wp db|wp transient|wp cache|wp package : 1 --path= --url= --user=
wp cron event : 1 --path= --url= --user=
make|gmake : 1 -C= --directory= -f= --file= --makefile= -j= --jobs= -I=
aws : 2 --profile= --region= --endpoint-url= --output=
restic : 1 -r= --repo= --repository-file= -p= --password-file= --password-command= -o= --option= --cache-dir=
borg : 1 --rsh= --lock-wait= --umask=
rclone : 1 --config=
certbot : 1 --config-dir= --work-dir= --logs-dir=
git : 1 -C= -c= --git-dir= --work-tree=
apt-get|apt|dnf|yum|systemctl|gitlab-backup : 1 -o= -c= -t=
"""


class Entry(NamedTuple):
    """A line of the table."""

    kind: bytes
    """`>`, `@`, `<` or `:`, as in the table."""
    words: int
    """Of a launcher: those before the program. Of a console: those that are part of the key."""
    options: frozenset[bytes]
    """As they are written in the table."""

    def takes_value(self, option: bytes) -> bool:
        """Return whether the next word is the value of this option."""
        *attached, last = self._forms(option)
        values = (b"=", b"=!")
        return self._has(last, values) and not any(self._has(form, values) for form in attached)

    def is_last(self, option: bytes) -> bool:
        """Return whether the program follows this option and its value."""
        return self._has(self._forms(option)[-1], (b"!", b"=!"))

    def _has(self, form: bytes, signs: tuple[bytes, ...]) -> bool:
        return any(form + sign in self.options for sign in signs)

    def _forms(self, option: bytes) -> list[bytes]:
        """Return how the table writes an option: `-lc` is `-l` and `-c`, unless the table has `-lc`."""
        known = option in self.options or self._has(option, (b"=", b"!", b"=!"))
        if known or option.startswith(b"--") or b"=" in option:
            return [option]
        return [b"-" + option[at : at + 1] for at in range(1, len(option))] or [option]

    @property
    def is_console(self) -> bool:
        """Whether it is a program itself."""
        return self.kind == b":"

    @property
    def is_elsewhere(self) -> bool:
        """Whether the program does not run in the present directory."""
        return self.kind == b"@"

    @property
    def is_interpreter(self) -> bool:
        """Whether a file is its program."""
        return self.kind == b"<"

    @property
    def has_separator(self) -> bool:
        """Whether the program follows `--`."""
        return b"--!" in self.options


def _parse() -> dict[bytes, Entry]:
    entries: dict[bytes, Entry] = {}
    for line in filter(None, _TABLE.splitlines()):
        kind = next(sign for sign in (b">", b"@", b"<", b":") if b" " + sign + b" " in line)
        names, _, rest = line.partition(b" " + kind + b" ")
        count, *options = rest.split()
        entry = Entry(kind, int(count), frozenset(options))
        entries.update(dict.fromkeys(names.split(b"|"), entry))
    return entries


_ENTRIES = _parse()


def entry_of(path: bytes) -> Entry | None:
    """Return the line of a launcher or console, None for any other program; `path`: its name, or `docker exec`."""
    return _ENTRIES.get(path) or _ENTRIES.get(path.rstrip(b"0123456789."))


LINE = Entry(b">", 0, frozenset())
"""A simple command itself: its first word is its program."""


def without_arguments(entry: Entry, words: list[bytes]) -> tuple[list[bytes], bool]:
    """Return the words of a launcher from its program on, and whether the first is a string with a command."""
    if entry.has_separator and b"--" in words:
        return words[words.index(b"--") + 1 :], False
    left, at = entry.words, 0
    is_string = False
    while at < len(words):
        word = words[at]
        if word.startswith(b"-"):
            at += 1 + entry.takes_value(word)
            if entry.is_last(word):
                left, is_string = 0, not entry.takes_value(word)
        elif left:
            left -= 1
            at += 1
        elif not is_string and (_is_assignment(word) or _is_variable(word)):
            at += 1
        else:
            break
    return words[at:], is_string


def _is_assignment(word: bytes) -> bool:
    return word[: word.find(b"=") + 1].strip(_LETTERS + _DIGITS + b"_") == b"="


def _is_variable(word: bytes) -> bool:
    """Return whether a word is a variable or a substitution, without a file name behind it."""
    return word.startswith((b"$", b"`")) and b"/" not in word[max(map(word.rfind, _CLOSING)) + 1 :]


def follow_console(
    path: bytes, entry: Entry, words: list[bytes]
) -> tuple[tuple[bytes, ...], Entry | None, list[bytes]]:
    """Return the words of a key, or a launcher and the words after it, such as those of `docker exec`."""
    name, left, at = [path], entry.words, 0
    while left and at < len(words):
        word = words[at].partition(b"[")[0]  # rake task[1]
        at += 1
        if word.startswith(b"-"):
            valued = entry.takes_value(word)
            if len(name) > 1 and not valued:  # the next word could be its value, and secret
                break
            at += valued
            continue
        path += b" " + word
        inner = entry_of(path)
        if inner and not inner.is_console:
            return (), inner, words[at:]
        if not _SUBCOMMAND_LETTERS.issuperset(word) or word[:1] in _DIGITS + b"-":
            break
        name.append(word)
        entry, left = (inner, inner.words) if inner else (entry, left - 1)
    return tuple(name), None, []
