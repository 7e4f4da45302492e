-- The second door to what firings call most: for the sessions of a pooler, which are used again and again.

-- Before 18, PostgreSQL plans an SQL function anew at each call, and a PL/pgSQL function once in a session. But in a session of one
-- firing PL/pgSQL costs 12 to 21 % more. So each function that is named here has a twin in PL/pgSQL, made of its own text: arguments, rights
-- and settings are the same, and the twin calls the twins of the others. The names are the SQL functions on the way of a plain firing
-- that PostgreSQL does not inline. `create or replace`: an upgrade makes them again from what its steps have left.
do $twins$
declare
  v_names constant text[] := array[
    'look_v1', 'look_at_log_v1', 'look_at_tick_v1', 'grant_v1', 'divided', 'finish_v1', 'finish_plainly_v1',
    'skip_v1', 'see_again_v1', 'see_first_v1'];
  f record;
begin
  perform set_config('quote_all_identifiers', 'off', true);     -- for pg_get_functiondef()
  for f in
    select p.proname as name, p.prosrc as body, p.prorettype::regtype as type,
           split_part(pg_get_functiondef(p.oid), e'\nAS $', 1) as head,
           (select string_agg(a.name, ', ' order by a.place)
              from unnest(p.proargnames, p.proargmodes) with ordinality a (name, mode, place) where a.mode = 'o') as outs
      from pg_proc p where p.pronamespace = '{ns}'::regnamespace and p.proname = any (v_names)
  loop
    f.head := replace(replace(f.head, '.' || f.name || '(', '.warm_' || f.name || '('), ' LANGUAGE sql', ' LANGUAGE plpgsql');
    f.body := regexp_replace(f.body, '[.](' || array_to_string(v_names, '|') || ')[(]', e'.warm_\\1(', 'g');
    execute f.head || e'\nas $warm$\n#variable_conflict use_column\n' || case
      when f.outs is null then format(e'declare r %s;\nbegin%sinto r;\nreturn r;\nend', f.type, f.body)
      else format(e'begin%sinto %s;\nend', f.body, f.outs) end || ' $warm$';
  end loop;
end $twins$;
