"""Judge which commands a guard would break, or would take away from hosts that need them: for wrap and lint alike.

    each-host    it maintains the host that runs it: logrotate, apt, certbot, reboot, `find /tmp ... -delete`
    pinned       it tests the name of the host: another host could win the tick and do nothing
    background   it ends at once, and what it has started goes on without a guard: `job &`, screen, tmux

A `# oncecron: key=NAME` comment says that one host is enough for the work of each host. It does not mend the other two.
A command that is not found here is one that oncecron can guard.

The rule for `oncecron-shell` is narrower (`words.per_host_program`): it cannot tell a person that it leaves a line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from oncecron.core.shell_words import OPERATOR, WORD, UnclosedError, tokens
from oncecron_crontab.guards import per_host_program
from oncecron_crontab.simple_commands import (
    Program,
    lines_within,
    program_name,
    program_of,
    simple_commands,
    to_bytes,
    to_text,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from oncecron_crontab.simple_commands import SimpleCommand

EACH_HOST, PINNED, BACKGROUND = "each-host", "pinned", "background"
"""Kinds of judgements."""


class Judgement(NamedTuple):
    """Why a command is not to be guarded as it is."""

    kind: str
    """`EACH_HOST`, `PINNED` or `BACKGROUND`."""
    what: str
    """The word of the command that shows it: a program, `$(hostname)`, `&`."""
    why: str
    """A clause: `because` for `EACH_HOST`, else what the word does."""


_OWN_JOBS = "it starts the jobs of each host"
_STARTERS = {"run-parts": _OWN_JOBS, "anacron": _OWN_JOBS, "oncecron": "it needs no guard"}
_WORK_OF_EACH_HOST = {
    "each host has its own packages": """
        apt apt-get apt-file apt-show-versions apticron aptitude apk cron-apt debsecan debsums dnf dnf-automatic flatpak
        needrestart pacman pkg snap unattended-upgrade unattended-upgrades yum yum-cron zypper
    """,
    "each host has its own logs": """
        awstats.pl journalctl logcheck logrotate logwatch newsyslog pflogsumm savelog webalizer
    """,
    "each host has its own certificates": """
        acme.sh certbot certbot-auto dehydrated getssl lego letsencrypt update-ca-certificates
    """,
    "it acts on the host that runs it": """
        halt hwclock init ldconfig modprobe poweroff reboot shutdown swapoff swapon sysctl systemctl service
        invoke-rc.d rc-service supervisorctl telinit
    """,
    "each host has its own processes": "kill killall pkill renice",
    "each host has its own clock": "chronyc ntpd ntpdate rdate sntp",
    "each host has its own disks": """
        arcconf btrbk btrfs checkarray e2scrub e2scrub_all e2scrub_all_cron fsck fstrim hdparm lvextend mdadm megacli
        nvme quotacheck raid-check sanoid smartctl snapper storcli tune2fs xfs_scrub zfs-auto-snapshot zpool
    """,
    "each host has its own temporary files": "sessionclean systemd-tmpfiles tmpreaper tmpwatch",
    "each host has its own measurements": """
        atop atop.daily collectl debian-sa1 mon-put-instance-data.pl munin-run rotate-stats sa1 sa2 sadc sar
        sensors vnstat
    """,
    "each host has its own index files": """
        fc-cache mandb update-mime-database updatedb updatedb.mlocate updatedb.plocate
    """,
    "each host must be checked": """
        aide checksecurity chkrootkit clamscan clamdscan lynis maldet rkhunter tiger tigercron tripwire
    """,
    "each host has its own copy of the data": "freshclam geoipupdate sa-update unbound-anchor",
    "each host has its own firewall": "csf fail2ban-client firewall-cmd ipset iptables iptables-restore nft ufw",
    "each host has its own mail queue": """
        amavisd-new-cronjob dma exim exim4 exim_tidydb greylistclean mailq postqueue postsuper qshape runq
    """,
    "each host has its own configuration": """
        ansible-pull cf-agent chef-client cinc-client crontab etckeeper popularity-contest puppet salt-call
    """,
}
_PROGRAMS = {name: why for why, names in _WORK_OF_EACH_HOST.items() for name in names.split()}
_OWN_CONTAINERS, _OWN_COPY = "each host has its own containers", "each host has its own copy"
_IN_BACKGROUND = "starts the job in the background, where oncecron does not see it end"
_BOUND = "binds it to one host: another host could win the tick and do nothing"
_ASKING = frozenset(
    ("is-active", "is-enabled", "is-failed", "status", "show", "list-units", "list-timers", "cat")
)  # fmt: skip
"""Words of systemctl, service and the like that only ask."""
_CONTAINERS = frozenset(("docker", "docker-compose", "podman", "podman-compose", "nerdctl"))
_VERBS = {
    **dict.fromkeys(
        _CONTAINERS,
        frozenset(("down", "kill", "prune", "pull", "restart", "rm", "rmi", "start", "stop", "up")),
    ),
    "git": frozenset(("pull",)),
}
"""Programs with which only some subcommands maintain the host."""
_LOCAL = (
    *("/tmp", "/var/tmp", "/run", "/var/run", "/dev/shm", "/var/log", "/var/cache", "/var/crash"),  # noqa: S108 - as text
    *("/var/spool", "/var/lib/php", "/proc", "/sys"),
)
"""Directories that each host has for itself."""
_SYSTEMD = b"/run/systemd/system"
_TIMER = "a timer replaces the line on each host with systemd"
_PANELS = (
    *("/usr/local/cpanel/", "/usr/local/psa/", "/opt/psa/", "/usr/local/directadmin/"),
    *("/usr/local/ispconfig/", "/usr/local/hestia/", "/usr/local/vesta/"),
)
"""Control panels; what they write for their users is elsewhere."""
_DELETING = frozenset(("-delete", "rm", "/bin/rm", "/usr/bin/rm", "unlink"))
_BESIDE_CLEARING = frozenset(
    (
        "", ":", "[", "[[", "cd", "date", "echo", "exit", "logger", "printf", "sleep", "sync", "test", "true",
    )
)  # fmt: skip
"""Programs beside one that clears a directory; any other is a job that perhaps only removes its own files."""
_DAEMONIZING = frozenset(("at", "batch", "bg", "daemon", "daemonize", "disown", "tsp"))
_OF_TMUX = frozenset(
    ("new", "new-session", "new-window", "neww", "send", "send-keys", "split-window", "splitw")
)
_WAITING = frozenset(("--wait", "--scope", "--pipe", "-P", "--pty", "-t"))
_DETACHED = frozenset(("-d", "--detach", "-dit", "-itd", "-td", "-dt"))
_TESTS = frozenset(("[", "[[", "test", "expr"))
_MATCHING = frozenset(("grep", "egrep", "fgrep"))
_DECIDING = frozenset(("if", "elif", "while", "until", "!"))
_SHOWING_HOST = frozenset(
    ("hostname", "hostnamectl", "ip", "ifconfig", "drbdadm", "crm_mon", "pcs")
)
_NAME_FILE = "/etc/hostname"
_OF_HOST = re.compile(
    r"(?:\$\(|`)\s*(?:/usr)?(?:/bin/)?(?:hostname|hostnamectl|uname\s+-n|cat\s+/etc/hostname|ip\s+a|ifconfig|drbdadm)"
    r"\b[^)`]*[)`]|\$\(<\s*/etc/hostname\)|\$\{?HOST(?:NAME)?\b(?:[^}\s\"]*\})?|pg_is_in_recovery"
)
"""A substitution or a variable that has the name, an address or the role of the host."""
_ASSIGNED = re.compile(r"(?:^|\s)(\w+)=((?:[^\s(`]|\([^)]*\)|`[^`]*`)*)")
_USED = re.compile(r"\$\{?(\w+)")


_KNOWN = frozenset(
    (
        *(*_PROGRAMS, *_VERBS, *_DAEMONIZING, *_TESTS, *_MATCHING, *_SHOWING_HOST, "uname"),
        *("rm", "truncate", "find", "screen", "tmux", "start-stop-daemon", "systemd-run"),
        *("dtach", "abduco", "wget", "setsid"),
    )
)
"""The programs that are judged."""


class _Part(NamedTuple):
    simple: SimpleCommand
    program: Program


def judgements(command: bytes) -> Iterator[Judgement]:
    """Yield why a command, as the shell gets it, is not to be guarded as it is: at most one judgement of each kind."""
    lines = list(lines_within(to_text(command)))
    parts = [
        _Part(simple, program_of(simple, _is_judged))
        for line in lines
        for simple in simple_commands(line) or ()
    ]
    for found in (
        _found_by_name(command),
        *map(_maintenance, parts),
        _clearing(parts),
        _replaced_by_timer(command),
    ):
        if found:
            yield found
            break
    for what in (*map(_ampersand, lines), *map(_background_starter, parts)):
        if what:
            yield Judgement(BACKGROUND, what, _IN_BACKGROUND)
            break
    for what in _tests_of_the_host(parts):
        yield Judgement(PINNED, what, _BOUND)
        break


def _is_judged(word: str) -> bool:
    return program_name(word) in _KNOWN or word.startswith(("/etc/init.d/", *_PANELS))


def objections(command: bytes, *, named: bool) -> Iterator[Judgement]:
    """Yield the judgements that count; `named`: a comment gives the line a key or options."""
    return (found for found in judgements(command) if not (named and found.kind == EACH_HOST))


# The work of each host


def _found_by_name(command: bytes) -> Judgement | None:
    starter = per_host_program(command)
    return Judgement(EACH_HOST, starter, _STARTERS[starter]) if starter else None


def _replaced_by_timer(command: bytes) -> Judgement | None:
    """Return the judgement of a package's line that does nothing where systemd runs: a timer does its work there."""
    if _SYSTEMD not in command:
        return None
    return Judgement(EACH_HOST, "it", _TIMER)


def _maintenance(part: _Part) -> Judgement | None:
    name, path, arguments = part.program
    why = _PROGRAMS["service"] if path.startswith("/etc/init.d/") else _PROGRAMS.get(name)
    if path.startswith(_PANELS):
        why = "it maintains the control panel of each host"
    verb = next((word for word in arguments if word in _VERBS.get(name, ())), None)
    if verb and not {"exec", "run"}.intersection(arguments):
        name, why = f"{name} {verb}", _OWN_COPY if name == "git" else _OWN_CONTAINERS
    if why is None or _ASKING.intersection(arguments[:2]):
        return None
    return Judgement(EACH_HOST, name, why)


def _clearing(parts: list[_Part]) -> Judgement | None:
    found = None
    for part in parts:
        directory = _cleared(part)
        if directory:
            name = part.program.name or "`>`"
            found = found or Judgement(EACH_HOST, name, f"each host has its own {directory}")
        elif part.program.name not in _BESIDE_CLEARING:
            return None
    return found


def _cleared(part: _Part) -> str | None:
    name, _, arguments = part.program
    clears = name in ("rm", "truncate") or (name == "find" and _DELETING.intersection(arguments))
    targets = [word for sign, word in part.simple.redirections if sign in (">", ">|", "&>")]
    paths = (*arguments, *targets) if clears else targets if name in ("", ":", "echo") else ()
    return next(
        (place for path in paths for place in _LOCAL if f"{path}/".startswith(f"{place}/")), None
    )


# In the background


def _ampersand(line: str) -> str | None:
    try:
        found = tokens(to_bytes(line))
    except UnclosedError:
        return None
    started = False
    for token in found:
        started = started or (token.kind == OPERATOR and token.value == b"&")
        if started and token.kind == WORD and token.value == b"wait":
            return None
    return "`&`" if started else None


def _background_starter(part: _Part) -> str | None:
    name, _, arguments = part.program
    if name == "setsid" and not {"-w", "--wait"}.intersection(arguments[:1]):
        return "setsid"
    options = {word for word in arguments if word.startswith("-")}
    letters = {letter for word in options if word[1:2] != "-" for letter in word[1:]}
    starts = (
        name in _DAEMONIZING
        or (name == "screen" and {"d", "m"} <= letters)
        or (name == "tmux" and bool(_OF_TMUX.intersection(arguments)))
        or (name == "start-stop-daemon" and ("b" in letters or "--background" in options))
        or (name == "systemd-run" and not _WAITING.intersection(options))
        or (name in _CONTAINERS and "run" in arguments and _DETACHED.intersection(options))
        or (name in ("dtach", "abduco") and "n" in letters)
        or (name == "wget" and bool({"-b", "--background"} & options))
    )
    return name if starts else None


# Bound to one host


def _tests_of_the_host(parts: list[_Part]) -> Iterator[str]:
    names: set[str] = set()
    for at, part in enumerate(parts):
        written = " ".join(part.simple.written)
        for assigned in _ASSIGNED.finditer(written):
            if host_in(assigned[2], names):
                names.add(assigned[1])
        if part.program.name in _TESTS or part.simple.words[:1] == ("case",):
            yield from filter(None, [host_in(written, names)])
        elif part.program.name in _MATCHING and _decides(parts, at):
            yield from filter(None, [_host_matched(parts, at, names)])


def host_in(written: str, names: Container[str] = ()) -> str | None:
    """Return what a word says of the host; `names`: variables that have its name."""
    found = _OF_HOST.search(written)
    if found:
        return f"`{found[0].strip('`')}`"
    used = next((name for name in _USED.findall(written) if name in names), None)
    return f"`${used}`" if used else None


def _host_matched(parts: list[_Part], at: int, names: set[str]) -> str | None:
    part = parts[at]
    if _NAME_FILE in part.program.arguments:
        return f"`{_NAME_FILE}`"
    if part.simple.joined_by != "|" or not at:
        return None
    before = parts[at - 1]
    if before.program.name in _SHOWING_HOST or (
        before.program.name == "uname" and "-n" in before.program.arguments
    ):
        return f"`{before.simple.text}`"
    return host_in(before.simple.text, names)


def _decides(parts: list[_Part], at: int) -> bool:
    start = at
    while start and parts[start].simple.joined_by == "|":
        start -= 1
    following = parts[at + 1].simple.joined_by if at + 1 < len(parts) else ""
    return following in ("&&", "||") or bool(_DECIDING.intersection(parts[start].simple.keywords))
