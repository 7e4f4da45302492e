#!/bin/sh
# Make the roles and the database of oncecron on this PostgreSQL server, as root: sh postgresql.sh HOST NETWORK
# HOST is this server's name as the hosts know it; NETWORK is theirs, which is let in. To run it again changes nothing.
set -e
umask 077
host=${1-db.example.com} network=${2-}
sql() { (cd / && runuser -u postgres -- psql -qAt -v ON_ERROR_STOP=1 "$@"); }
port=$(sql -c 'show port')

for role in oncecron_owner cron; do
  found=$(sql -c "select 'role $role exists, and keeps its password' where to_regrole('$role') is not null")
  if [ "$found" ]; then echo "$found"; continue; fi
  password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  echo "set log_statement = 'none'; create role $role login password '$password'" | sql &&
    echo "$host:$port:oncecron:$role:$password" >$role.pgpass
done
sql <<'SQL'
select 'database oncecron exists, owned by ' || pg_get_userbyid(datdba) from pg_database where datname = 'oncecron';
select 'create database oncecron owner oncecron_owner' where not exists (select from pg_database where datname = 'oncecron') \gexec
revoke all on database oncecron from public;
grant connect on database oncecron to cron;
SQL

if [ "$network" ]; then
  kind=host; if [ "$(sql -c 'show ssl')" = on ]; then kind=hostssl; fi
  line="$kind oncecron oncecron_owner,cron $network scram-sha-256"
  hba=$(sql -c 'show hba_file')
  grep -qxF "$line" "$hba" || echo "$line" >>"$hba"
  if [ "$(sql -c 'show listen_addresses')" = '*' ]; then
    sql -c 'select pg_reload_conf()' >/dev/null
  else
    sql -c "alter system set listen_addresses = '*'"
    systemctl restart postgresql
  fi
fi
