-- The queries of `oncecron notify`; see reader.sql.

-- name: notices
select n.channel, n.version, n.document from {ns}.notices n where n.channel = any (%(channels)s::text[])

-- name: other_notices
select count(*) from {ns}.notices n where n.channel <> all (%(channels)s::text[])

-- name: remove_other_notices
with gone as (delete from {ns}.notice n where n.channel <> all (%(channels)s::text[]) returning 1) select count(*) from gone

-- name: put_notice
select {ns}.put_notice_v1(%(channel)s, %(version)s, %(document)s)
