"""Reading what happened: history, jobs, hosts, audit, why."""
