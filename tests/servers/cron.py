"""Hosts with a real Debian cron daemon, each with a hostname and a spool of its own.

A mount namespace hides the real machine's crontabs and directories from the daemon, and the
daemon's from the machine. `/usr/sbin` is covered by links to the real one, so that it can hold a
`sendmail` even where no mail server is installed.
"""

import pwd
import shlex
import signal
import subprocess
from collections.abc import Callable

from servers.namespaces import Host, Machine
from servers.process import end, public_directory, remove_directory
from servers.require import program
from servers.skew import skewed
from servers.waiting import eventually

END_OF_MAIL = "\x1e"
SENDMAIL = """\
#!/bin/sh
exec flock {mailbox} sh -c 'cat; printf "\\036"' >>{mailbox}
"""
MARK = "/var/spool/cron/belongs-to-the-tests"
SETUP = """\
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/spool/cron
install -d -m 1730 -g crontab /var/spool/cron/crontabs
touch {mark}
mount -t tmpfs -o mode=755 tmpfs /etc/cron.d
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
[ ! -e /etc/crontab ] || mount --bind {directory}/empty /etc/crontab
mkdir {directory}/sbin
mount --bind /usr/sbin {directory}/sbin
mount -t tmpfs -o mode=755 tmpfs /usr/sbin
ln -s {directory}/sbin/* /usr/sbin/
rm -f /usr/sbin/sendmail
cp {directory}/sendmail /usr/sbin/sendmail
"""

INSTALL = """\
test -e {mark}
cd /var/spool/cron/crontabs
cat >{user}.new
chown {user}:crontab {user}.new
chmod 600 {user}.new
mv {user}.new {user}
"""


class CronHost(Machine):
    """A host whose cron runs `crontab` for `user`.

    `skew` sets its clock off by seconds, for the daemon and its jobs. `host` puts it on a host of
    a Network instead of one of its own; its name is then that host's.
    """

    def __init__(
        self, name: str, crontab: str, *, user: str = "root", skew: float = 0,
        host: Host | None = None,
    ) -> None:  # fmt: skip
        self.cron: subprocess.Popen[bytes] | None = None
        self.daemon: list[str] = []
        """The command of another daemon than Debian's own."""
        self.user = user
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        if skew:
            self.environment = skewed(skew, self.environment)
        self.directory = public_directory("cron")
        self.mailbox = self.directory / "mailbox"
        self._prepare()
        super().__init__(
            host.name if host else name,
            ["mount"] if host else ["mount", "uts"],
            setup=SETUP.format(mark=MARK, directory=shlex.quote(str(self.directory))),
            base=host.prefix if host else (),
        )
        self.install(crontab)

    def install(self, crontab: str) -> None:
        """Replace the crontab; the daemon reads it within a minute."""
        clock = {k: v for k, v in self.environment.items() if k != "PATH"}
        lines = "".join(f"{name}={value}\n" for name, value in clock.items())
        script = INSTALL.format(mark=MARK, user=self.user)
        self.run(["/bin/sh", "-ec", script], input=lines + crontab)

    def start(self) -> "CronHost":
        """Start the daemon, never without a spool of its own."""
        self.run(["test", "-e", MARK])
        # By env, so that the programs which only lead here do not get the wrong clock too.
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        daemon = self.daemon or [program("cron"), "-f"]
        command = ["/usr/bin/env", "-i", *variables, *daemon]
        self.cron = self.popen(command, stdout=subprocess.DEVNULL)
        return self

    def stop(self) -> None:
        """Stop the daemon; its jobs go on."""
        if self.cron is not None:
            end(self.cron, signal.SIGTERM)
            self.cron = None

    def mails(self) -> list[str]:
        """Return the mails, with their headers, that cron has handed to sendmail."""
        return self.mailbox.read_text().split(END_OF_MAIL)[:-1]

    def wait_mail(self, where: Callable[[str], bool], deadline: float = 70) -> str:
        return eventually(lambda: next(filter(where, self.mails()), None), deadline) or ""

    def remove(self) -> None:
        super().remove()
        self.stop()
        remove_directory(self.directory)

    def _prepare(self) -> None:
        pwd.getpwnam(self.user)
        (self.directory / "empty").touch()
        self.mailbox.touch()
        self.mailbox.chmod(0o666)
        sendmail = self.directory / "sendmail"
        sendmail.write_text(SENDMAIL.format(mailbox=self.mailbox))
        sendmail.chmod(0o755)
