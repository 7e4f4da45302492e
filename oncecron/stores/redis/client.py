"""redis-py for the people's half: no retries behind our back, RESP2, explicit timeouts.

A firing never comes here (importing redis-py takes 94 ms); see `oncecron.stores.redis.wire`.
"""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from oncecron.core.light import TYPE_CHECKING
from oncecron.stores.redis.session import client_name

if TYPE_CHECKING:
    from typing import Any

    from oncecron.stores.redis.address import Target, Tls

# ruff: noqa: PLC0415 - the modules for sentinels and clusters are imported where they are used

_FIRST_WITHOUT_ATTEMPTS = 6  # major version of redis-py whose `retry` counts for the whole cluster


def connect_redis_py(target: Target, patience: float, key: str) -> redis.Redis:
    """Return a client; it connects at its first command, or now if it is a cluster's.

    `patience`: seconds that connecting, and each answer, may take; `key`: a name of the namespace, all of which one
    node of a cluster has. What fails raises redis-py's own errors.
    """
    common = _common(target.tls, patience)
    login = {
        "username": target.username,
        "password": target.password,
        "client_name": client_name("oncecron"),
    }
    if target.kind == "cluster":
        return _node(target, {**common, **login}, key)
    options = {**common, **login, "db": target.database, "retry": Retry(NoBackoff(), 0)}
    if target.kind == "sentinel":
        return _master(target, common, options)
    if target.kind == "socket":
        return redis.Redis(unix_socket_path=target.path, **options)
    host, port = target.hosts[0]
    return redis.Redis(host=host, port=port, **options)


def _common(tls: Tls | None, patience: float) -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_timeout": patience,
        "socket_connect_timeout": patience,
        "protocol": 2,
        "encoding_errors": "surrogateescape",
    }
    if tls is not None:
        options |= {
            "ssl": True,
            "ssl_ca_certs": tls.ca_certs,
            "ssl_certfile": tls.certfile,
            "ssl_keyfile": tls.keyfile,
            "ssl_password": tls.keyfile_password or "",  # else OpenSSL asks on the terminal
            "ssl_cert_reqs": "required" if tls.verify else "none",
            "ssl_check_hostname": tls.verify and tls.check_hostname,
        }
    return options


def _master(target: Target, common: dict[str, Any], options: dict[str, Any]) -> redis.Redis:
    from redis import sentinel

    untyped: Any = sentinel  # redis-py says nothing of its types here
    sentinels = untyped.Sentinel(
        target.hosts,
        sentinel_kwargs={
            **common,
            "username": target.sentinel_username,
            "password": target.sentinel_password,
            "retry": Retry(NoBackoff(), 0),
        },
    )
    client: redis.Redis = sentinels.master_for(target.master, **options)
    return client


def _node(target: Target, options: dict[str, Any], key: str) -> redis.Redis:
    from redis import cluster

    untyped: Any = cluster
    if int(redis.__version__.partition(".")[0]) < _FIRST_WITHOUT_ATTEMPTS:
        options["cluster_error_retry_attempts"] = 0
    nodes = [untyped.ClusterNode(host, port) for host, port in target.hosts]
    whole = untyped.RedisCluster(startup_nodes=nodes, retry=Retry(NoBackoff(), 0), **options)
    client: redis.Redis = whole.get_redis_connection(whole.get_node_from_key(key))
    return client
