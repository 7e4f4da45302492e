-- What each role may do with what channels were notified of; see grants.sql.

-- name: run
grant execute on function {ns}.put_notice_v1 to {role};

-- name: read
grant select on {ns}.notices to {role};

-- name: operate
grant select on {ns}.notices to {role};
