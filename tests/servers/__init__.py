"""Real servers, networks and hosts for the tests, each stopped by its own process id.

Everything listens on loopback or inside a network namespace of its own, on a port and in a
directory of its own; nothing outlives the test process, however that one ends.
"""

from servers.certificates import Certificates
from servers.cron import CronHost
from servers.disk import Disk
from servers.journal import Journal, assert_exclusive, assert_tokens_rise, job
from servers.namespaces import Host, Network
from servers.pgbouncer import PgBouncer
from servers.postgres import ROLES, Database, PostgresServer
from servers.process import descendants, spawn
from servers.proxy import FaultProxy
from servers.recorder import Answer, Received, Recorder
from servers.redis import RedisServer
from servers.redis_groups import RedisCluster, Sentinels
from servers.require import not_proven
from servers.skew import SteppedClock, skewed
from servers.smtp import SmtpSink
from servers.waiting import eventually

__all__ = [
    "ROLES", "Answer", "Certificates", "CronHost", "Database", "Disk", "FaultProxy", "Host", "Journal",
    "Network", "PgBouncer", "PostgresServer", "Received", "Recorder", "RedisCluster", "RedisServer",
    "Sentinels", "SmtpSink", "SteppedClock", "assert_exclusive", "assert_tokens_rise", "descendants",
    "eventually", "job", "not_proven", "skewed", "spawn",
]  # fmt: skip
