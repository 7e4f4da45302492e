"""One connection with a Redis store, by the standard library alone: every command ends by a deadline.

No command is ever sent a second time, with one exception: a node of a Redis Cluster says by MOVED or ASK that it did
not execute the command, and which node will. An error of the server is a `ReplyError`; a wire without an answer is
dead: open a new one, and the next answer tells what became of the command.
"""

from __future__ import annotations

from oncecron.core.errors import StoreError, StoreUnavailable
from oncecron.core.light import TYPE_CHECKING
from oncecron.stores.redis.connection import Introduction, Session, Way
from oncecron.stores.redis.resp import Reply, ReplyError, Word, packed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeGuard

    from oncecron.stores.redis.address import Host, Target

__all__ = ["Reply", "ReplyError", "Wire", "Word"]

# ruff: noqa: PLC0415 - what a firing rarely needs, it imports when it does

_MOST_REDIRECTS = 5


class Wire:
    """One connection; with a cluster, to the node that answered last."""

    def __init__(
        self, target: Target, *, clock: int, deadline: float, patience: float, name: str
    ) -> None:
        """Connect. `patience`: seconds that one server may take; `name`: as CLIENT LIST shows it.

        The resolver of names takes its own time. Raises `StoreUnavailable` or, when asking again does not help,
        `StoreRefusesError` or `ConfigurationError`.
        """
        self._target = target
        self._name = name
        self._way = Way(target, clock, patience)
        self._quick: Way | None = None
        self._session: Session | None = self._connected(deadline)

    def fileno(self) -> int:
        """Return the socket, -1 when the wire is dead."""
        return -1 if self._session is None else self._session.fileno()

    def watch_fd(self) -> int:
        """Return what becomes readable when the server says something unasked, or hangs up; -1 when dead."""
        return -1 if self._session is None else self._session.watch_fd()

    def close(self) -> None:
        """Close the connection without waiting."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def ask(self, *words: Word, deadline: float) -> Reply:
        """Send one command and return its answer: one round trip.

        `deadline`: seconds of the wire's clock. Raises `ReplyError`, `StoreUnavailable` when there is no answer by
        the deadline, or `StoreRefusesError` when the server does not let us in; dead after the last two.
        """
        return self.ask_batch([packed(words)], deadline=deadline)[0]

    def ask_batch(self, commands: Sequence[bytes], *, deadline: float) -> list[Reply]:
        """Send commands, as `packed` makes them, and return their answers: one round trip.

        All are sent before the first answer is read. Raises as `ask` does; a `ReplyError` is the first of several
        refusals, and the other commands were executed all the same.
        """
        try:
            answers = self._answers(commands, deadline)
            replies = [answer for answer in answers if not isinstance(answer, ReplyError)]
            if len(replies) == len(answers):
                return replies
            refusal = next(answer for answer in answers if isinstance(answer, ReplyError))
            from oncecron.stores.redis.explain import of_command

            failure = of_command(refusal, self._way.where(self._living().place))
        except BaseException:
            self.close()
            raise
        if failure is None:
            raise refusal
        self.close()
        raise failure

    def listen(self, channel: str, *, deadline: float) -> bool:
        """Have the server say what is published there; return False where it never will.

        One round trip, or none where we listen already. Raises as `ask` does; dead too after a server without RESP3.
        """
        session = self._living()
        try:
            refusal = session.listen(channel, deadline=deadline)
        except BaseException:
            self.close()
            raise
        if refusal is not None:
            from oncecron.stores.redis.explain import of_command

            failure = of_command(refusal, self._way.where(session.place))
            if failure is not None:
                self.close()
                raise failure
        if session.fileno() == -1:
            self.close()
        return refusal is None

    def is_at_master(self, deadline: float) -> bool:
        """Return False where the sentinels name another master than the one at the other end.

        A master that lives through a failover is told of it seconds later, and takes writes until then: who stayed
        would renew there what the new master grants to others. Sentinels that do not answer change nothing.
        """
        if self._target.kind != "sentinel" or self._session is None:
            return True
        from oncecron.stores.redis.sentinel import master

        if self._quick is None:
            self._quick = Way(
                self._target, self._way.clock, self._way.patience / 2 / len(self._target.hosts)
            )
        try:
            return master(self._target, self._quick, deadline) == self._session.place
        except StoreError:
            return True

    def _answers(self, commands: Sequence[bytes], deadline: float) -> list[Reply | ReplyError]:
        """Send the commands, and those that a node did not execute to the node that it names."""
        answers = self._living().ask_all(commands, deadline=deadline)
        redirects = 0
        while redirection := next((each for each in answers if _is_redirection(each)), None):
            if redirects == _MOST_REDIRECTS:
                where = self._way.where(self._living().place)
                raise StoreUnavailable(
                    f"{where}: the nodes of the cluster point at each other ({redirection!s})"
                )
            redirects += 1
            again = [at for at, answer in enumerate(answers) if _is_redirection(answer)]
            found = self._redirected(redirection, [commands[at] for at in again], deadline)
            for at, answer in zip(again, found, strict=True):
                answers[at] = answer
        return answers

    def _redirected(
        self, redirection: ReplyError, commands: Sequence[bytes], deadline: float
    ) -> list[Reply | ReplyError]:
        """Ask the node that a redirection names; all names of a namespace have the same slot, and so the same node."""
        here = self._living()
        if self._target.kind != "cluster":
            from oncecron.stores.redis.explain import of_a_cluster

            raise of_a_cluster(self._way.where(here.place))
        there = self._session_with(_place(redirection, here, self._way), deadline)
        if redirection.code == "ASK":  # this once; the slot is not there yet
            asking = packed(("ASKING",))
            pairs = [word for command in commands for word in (asking, command)]
            try:
                return there.ask_all(pairs, deadline=deadline)[1::2]
            finally:
                there.close()
        self._session = there
        here.close()
        for channel in here.channels:
            there.listen(channel, deadline=deadline)
        return there.ask_all(commands, deadline=deadline)

    def _living(self) -> Session:
        if self._session is None:
            raise StoreUnavailable(f"Redis {self._target.shown}: this connection is closed")
        return self._session

    def _session_with(self, place: Host | str, deadline: float) -> Session:
        target = self._target
        introduction = Introduction(target.username, target.password, target.database, self._name)
        return Session(place, self._way, introduction, deadline)

    def _connected(self, deadline: float) -> Session:
        target = self._target
        if target.kind == "socket":
            return self._session_with(target.path, deadline)
        if target.kind == "sentinel":
            from oncecron.stores.redis.sentinel import master

            return self._session_with(master(target, self._way, deadline), deadline)
        if len(target.hosts) == 1:
            return self._session_with(target.hosts[0], deadline)
        return self._first_of_cluster(deadline)

    def _first_of_cluster(self, deadline: float) -> Session:
        """Return the first node that answers: a frozen one accepts connections too."""
        failures = []
        for place in self._target.hosts:
            try:
                return self._proved(self._session_with(place, deadline), deadline)
            except StoreUnavailable as error:
                failures.append(str(error).removeprefix(f"Redis {self._target.shown}: "))
        raise StoreUnavailable(f"Redis {self._target.shown}: {'; '.join(failures)}")

    def _proved(self, session: Session, deadline: float) -> Session:
        reply = session.ask(packed(("PING",)), deadline=self._way.soon(deadline))
        if isinstance(reply, ReplyError):
            from oncecron.stores.redis.explain import of_command

            failure = of_command(reply, self._way.where(session.place))
            if failure:
                session.close()
                raise failure
        return session


def _is_redirection(answer: Reply | ReplyError) -> TypeGuard[ReplyError]:
    return isinstance(answer, ReplyError) and answer.code in ("MOVED", "ASK")


def _place(redirection: ReplyError, here: Session, way: Way) -> Host:
    """Return the node that MOVED or ASK names: `MOVED 3999 127.0.0.1:6381`."""
    host, _, port = str(redirection).rpartition(" ")[2].rpartition(":")
    if not host and not isinstance(here.place, str):
        host = here.place[0]
    if not host.isascii() or host in ("", "?") or not port.isdigit():
        from oncecron.stores.redis.explain import nameless

        raise nameless(redirection, way.where(here.place))
    return host, int(port)
