"""Which process of several runs a test: whichever is free draws the next one.

So that nothing is waited for alone at the end, what takes long comes first.
"""

from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    "test_completion.py": "they share shells",
    "test_cron_daemons.py": "they look at what the same two minutes have left",
    "test_other_crons.py": "so do they",
    "test_clusters.py": "they share clusters",
    "test_packages.py": "they share packages that take half a minute to build",
    "test_clock_skew.py": "they share a server with a clock of its own",
    "test_web.py": "they share a server of pages",
    "test_schema_upgrade.py": "they share a next version",
}
"""The files whose tests run in one process, and why; those of `browser` do, all together, because they share one."""


class Distribution(LoadScopeScheduling):  # type: ignore[misc] # where xdist has no types
    """Gives tests out one by one in the order in which they stand, those of TOGETHER first."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder, _, name = file.rpartition("/")
        if folder.endswith("/browser"):
            return "browser"
        return file if name in TOGETHER else nodeid
