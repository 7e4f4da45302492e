-- After an upgrade each role gets again what `init` gave it, with what is new: the grants to "{role}" in place of the names in braces,
-- if the role has a right on the object that is named beside them.
do $kept_rights$
declare
  r record;
begin
  for r in
    select replace(g.statements, '"{role}"', quote_ident(pg_get_userbyid(a.grantee))) as statements
      from (values ('grant()', $run${run}$run$), ('pause()', $operate${operate}$operate$), ('assert_fence()', $job${job}$job$),
                   ('outputs', $read${read}$read$)) g (name, statements)
      join (select regexp_replace(p.proname, '_v[0-9]+$', '') || '()' as name, p.proacl as acl from pg_proc p
             where p.pronamespace = '{ns}'::regnamespace
            union all
            select c.relname, c.relacl from pg_class c where c.relnamespace = '{ns}'::regnamespace) o on o.name = g.name
     cross join aclexplode(o.acl) a
     where a.grantee not in (0, (select n.nspowner from pg_namespace n where n.oid = '{ns}'::regnamespace))
  loop
    execute r.statements;
  end loop;
end $kept_rights$;
