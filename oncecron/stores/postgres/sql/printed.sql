do $printed$
declare
  v_version integer;
begin
  if to_regclass('{ns}.meta') is null then execute $made$
{made}$made$;
    return;
  end if;
  if current_user <> (select pg_get_userbyid(n.nspowner) from pg_namespace n where n.oid = '{ns}'::regnamespace) then
    raise exception 'run this as %, the owner of the schema: set role, and again',
      (select n.nspowner::regrole from pg_namespace n where n.oid = '{ns}'::regnamespace);
  end if;
  lock table {ns}.meta in share row exclusive mode;
  select m.version into v_version from {ns}.meta m;
  if v_version = {version} then null;
{upgrades}  else raise exception 'the schema has version %, and this SQL is for {version}', v_version;
  end if;
end $printed$;
