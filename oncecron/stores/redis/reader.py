"""The commands for people on Redis: what they change, and what the server says about itself."""

from __future__ import annotations

import math

from oncecron.core import clock
from oncecron.core.diagnosis import Diagnosis, of_clock
from oncecron.core.errors import ConfigurationError, StoreRefusesError
from oncecron.core.light_typing import TYPE_CHECKING
from oncecron.core.log_rows import UNCHANGED, Released, Unblocked
from oncecron.core.progress import no_progress
from oncecron.core.timing import MAX_CLOCK_SKEW
from oncecron.stores import schema_version
from oncecron.stores.address import command_line
from oncecron.stores.reader import answered, brought
from oncecron.stores.redis import scripts
from oncecron.stores.redis.doctor import examine
from oncecron.stores.redis.explain import acl_command, acl_rule
from oncecron.stores.redis.people_client import PeopleClient
from oncecron.stores.redis.views import RedisViews

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from oncecron.core.facts import Values
    from oncecron.core.log_rows import LeastRetention, Roles
    from oncecron.core.model import Request, Retention
    from oncecron.core.progress import Progress
    from oncecron.stores.api import Row

_BATCH = 1000  # executions or skips that one step removes


class RedisReader(RedisViews):
    """The people's half of the store on Redis or Valkey; see `oncecron.stores.api.Views`."""

    @answered
    def forget(self, key: str, author: str) -> bool:
        shards = self._shards([key])
        for shard in shards:
            self._client.step("forget", [shard.name], {"part": shard.name, "author": author})
        return bool(shards)

    @answered
    def forget_host(self, host: str) -> bool:
        return any(self._ask_shards("HDEL", "hosts", self._shards(None), host))

    @answered
    def request(self, key: str, shard: int, execution_id: int, request: Request) -> bool:
        name = scripts.shard_of(key, shard)
        values = {"part": name, "execution_id": execution_id, **request._asdict()}
        return bool(self._client.step("request", [name], values))

    @answered
    def release(
        self,
        key: str,
        shard: int,
        execution_id: int | None,
        *,
        author: str,
        force: bool,  # noqa: ARG002 - no lock hangs on a session
    ) -> Released:
        name = scripts.shard_of(key, shard)
        values = {"part": name, "execution_id": execution_id, "author": author}
        state, ends_in = self._client.confirmed_step("release", [name], values)
        return Released(state.decode(), ends_in=float(ends_in))

    @answered
    def unblock(self, key: str, shard: int | None) -> list[Unblocked]:
        found = []
        for each in self._shards([key]):
            if shard is None or each.number == shard:
                values: Values = {"part": each.name, "max_skew": MAX_CLOCK_SKEW}
                marks = self._client.confirmed_step("unblock", [each.name], values)
                if any(marks):
                    times = (float(mark) if mark else None for mark in marks)
                    found.append(Unblocked(each.number, *times))
        return found

    @answered
    def pruned(
        self, retention: Retention, names_kept: int, *, dry_run: bool
    ) -> Iterator[tuple[int, int]]:
        kept = scripts.retention_values(retention, self._target.keep)
        for shard in self._shards(None):
            values: Values = {"part": shard.name, **kept, "most": _BATCH, "names": names_kept}
            yield from self._prune_shard(shard.name, {**values, "from": "-"}, dry_run=dry_run)
        if not dry_run:
            for member in self._ask("ZRANGE", self._names.of_namespace("lists"), 0, -1):
                self._expire_list(member.decode(errors="replace"), kept)

    def _expire_list(self, name: str, kept: Values) -> None:
        """Remove a list of items if it has expired, some items in a step; one that gains items meanwhile is left."""
        keys, values = self._names.of_expiry(name), scripts.expiry_values(name, kept)
        before = math.inf
        while 1 < (left := int(self._client.step_of_keys("each/expire", keys, values))) < before:
            before = left

    def _prune_shard(
        self, name: str, values: Values, *, dry_run: bool
    ) -> Iterator[tuple[int, int]]:
        executions = page = 0
        more = 1
        while more:
            if dry_run:
                values = {**values, "dry": 1, "counted": executions, "page": page}
            answer = self._client.step("prune", [name], values)
            if not isinstance(answer, list):
                raise TypeError
            ended, skipped, more, next_from = answer
            yield ended, skipped
            executions += ended
            page += 1
            # A real one goes on where the key says. `+`: none is left to be counted.
            at = next_from if next_from not in (b"", b"-") else "+"
            values = {**values, "from": at if dry_run else None}

    def stop_starts(
        self,
        key: str | None,
        host: str | None,
        author: str | None,
        reason: str | None = None,
        seconds: float | None = None,
    ) -> tuple[Any, Row | None]:
        values: Values = {"key": key, "drained": host, "author": author, "reason": reason}
        answer = self._client.confirmed_step("pause", [], {**values, "seconds": seconds})
        now, before = (self._pause_row(key, host, text) if text else None for text in answer)
        return now, before

    @answered
    def change(self, name: str, by: str, **values: Any) -> Any:
        del by
        return brought(name, "redis")(self._client, **values)

    # What the server says

    @answered
    def initialise(
        self, roles: Roles, least: LeastRetention = UNCHANGED, *, progress: Progress = no_progress
    ) -> str:
        if any(roles):
            user = next(name for part in roles for name in part)
            raise ConfigurationError(
                f"Redis has no roles; to make the user {user}, {self._acl_command(user)}"
            )
        found = self._upgrade(progress)
        _, server = self.versions()
        name = self._names.of_namespace("namespace")
        given = least.given().items()
        self._client.ask([("HSET", name, f"least_{field}", seconds) for field, seconds in given])
        where = f"Redis {self._target.shown} (version {server.partition(' ')[2]})"
        if found != scripts.LAYOUT:
            return f"{where}: upgraded the data of {self._namespace} from version {found} to {scripts.LAYOUT}"
        return f"{where} needs no preparation"

    def _upgrade(self, progress: Progress) -> int:
        """Bring the data to the version of this program, whole or not at all; return the version that they had."""
        where = f"Redis {self._target.shown}"
        self._client.close()
        self._client = PeopleClient(self._target, self._names)
        name = self._names.of_namespace("namespace")
        layout, oldest = self._ask("HMGET", name, "layout", "oldest")
        if layout:
            recorded = schema_version.Recorded(int(layout), oldest and int(oldest))
            schema_version.missing(where, recorded, scripts.LAYOUT, scripts.STEPS)
        progress()
        answer = self._client.step("upgrade", [], {})
        if answer == b"rights":
            raise StoreRefusesError(
                f"{where}: an upgrade also needs the right to RESTORE; run "
                f"{command_line('init', self._target.shown, self._namespace)} as the server's administrator"
            )
        return int(answer)

    def schema_sql(self, roles: Roles, least: LeastRetention = UNCHANGED) -> str:
        del roles, least
        raise ConfigurationError(
            f"a Redis store has no SQL; to make its user, {self._acl_command('oncecron')}"
        )

    def _acl_command(self, user: str) -> str:
        rule = acl_rule(user, self._namespace, login="on >PASSWORD")
        return acl_command(self._target, rule)

    @answered
    def versions(self) -> tuple[int, str]:
        server = self._ask("INFO", "server")
        valkey = server.get("valkey_version")
        return (
            scripts.LAYOUT,
            f"Valkey {valkey}" if valkey else f"Redis {server.get('redis_version')}",
        )

    @answered
    def examine(self) -> Iterator[Diagnosis]:
        before = clock.wall()
        namespace = self._names.of_namespace("namespace")
        asked = [("INFO",), ("TIME",), ("HGETALL", namespace)]
        info, (seconds, microseconds), recorded = self._client.ask(asked)
        after = clock.wall()
        now = int(seconds) + int(microseconds) / 1e6
        yield from examine(self._target, info, recorded, now)
        yield of_clock(now, before, after)
