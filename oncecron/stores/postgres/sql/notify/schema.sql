-- What each channel of `oncecron notify` was notified of; put_notice_v1() bounds how many there are.
create table {ns}.notice (
  channel  {ns}.key_name primary key,
  version  {ns}.exact_integer not null,      -- how often it was written
  document {ns}.document_text not null       -- JSON
);

create view {ns}.notices as
  select n.channel, n.version, n.document from {ns}.notice n;

-- Compare and set: whoever has read another version changes nothing. Version 0: the channel has no row yet. The channels
-- are counted behind a lock, so that a role that may fire cannot make more at once. Null: there are too
-- many (MOST_CHANNELS of oncecron_notify/notices.py).
create function {ns}.put_notice_v1(p_channel text, p_version bigint, p_document text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10s' as $$
begin
  if p_version > 0 then
    update {ns}.notice n set version = n.version + 1, document = p_document where n.channel = p_channel and n.version = p_version;
    return found;
  end if;
  lock table {ns}.notice in share row exclusive mode;
  if (select count(*) from {ns}.notice n where n.channel <> p_channel) >= 100 then return null; end if;
  insert into {ns}.notice (channel, version, document) select p_channel, 1, p_document where p_version = 0
    on conflict (channel) do nothing;
  return found;
end $$;
