-- Terms that never fall, whatever becomes of the server, and leases that can be forgotten. Older workers run on beside it: they call
-- term_floor() and insert into leases, and get the new behaviour from there.

-- From where terms are counted. `timeline` is the server's when `lowest` was fixed; the others say which database this is: a dump that
-- was restored, and a cluster that was made anew, have other ones.
create table {schema}.epoch (
  one       boolean primary key default true constraint epoch_one check (one),
  lowest    bigint not null,
  timeline  bigint not null,
  cluster   text not null,
  relation  oid not null
) with (fillfactor = 50);

-- Null where that may not be asked: some managed servers refuse it. Their replicas share the storage, or are promoted without loss, and
-- a restored copy is known by its cluster and the table's number.
create function {schema}.timeline() returns bigint
  language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
  return ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint;
exception when others then
  return null;
end $$;

-- Which cluster this is. Where that may not be asked, dumps that are restored are still known by the table's number.
create function {schema}.cluster() returns text
  language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
  return (select system_identifier::text from pg_catalog.pg_control_system());
exception when others then
  return 'unknown';
end $$;

insert into {schema}.epoch (lowest, timeline, cluster, relation)
values ((coalesce({schema}.timeline(), 1) - 1) << 40, coalesce({schema}.timeline(), 1), {schema}.cluster(), '{schema}.epoch'::regclass);

-- The least term a claim may mint. It is kept, and only grows: by the timelines that were passed, because a standby that lagged when
-- it was promoted has forgotten the last terms. The first claim on a new timeline writes it down.
create or replace function {schema}.term_floor() returns bigint
  language plpgsql volatile parallel unsafe set search_path = pg_catalog, pg_temp
as $$
declare
  now_on bigint := {schema}.timeline();
  known_on bigint;
  known bigint;
begin
  select lowest, timeline into known, known_on from {schema}.epoch;
  if now_on > known_on then
    update {schema}.epoch set lowest = lowest + ((now_on - timeline) << 40), timeline = now_on where timeline < now_on;
    select lowest into known from {schema}.epoch;
  end if;
  return coalesce(known, (coalesce(now_on, 1) - 1) << 40);
end $$;

-- Called where a process begins to claim: is this still the database that terms were counted in? If not, they go on above all that
-- may have been given since it was copied. A timeline that fell (pg_upgrade begins anew) is another cluster.
create function {schema}.begin_epoch() returns void
  language plpgsql volatile set search_path = pg_catalog, pg_temp
as $$
declare
  here text := {schema}.cluster();
  now_on bigint := {schema}.timeline();
begin
  if exists (select from {schema}.epoch where cluster <> here or relation <> tableoid or timeline > now_on) then
    update {schema}.epoch
       set lowest = lowest + ((greatest(now_on - timeline, 0) + 1) << 40), timeline = coalesce(now_on, timeline), cluster = here, relation = tableoid
     where cluster <> here or relation <> tableoid or timeline > now_on;
  end if;
end $$;

-- Terms of leases come from one sequence, so that a name that was forgotten does not begin anew. The trigger is there before the
-- sequence is set: it keeps older workers from making larger ones meanwhile.
create sequence {schema}.lease_terms;
create function {schema}.lease_term() returns trigger
  language plpgsql set search_path = pg_catalog, pg_temp
as $$
begin
  new.term := {schema}.term_floor() + nextval('{schema}.lease_terms');
  return new;
end $$;
create trigger leases_term before insert on {schema}.leases for each row execute function {schema}.lease_term();
select setval('{schema}.lease_terms', greatest(1, max(term - {schema}.term_floor())), coalesce(max(term - {schema}.term_floor()), 0) > 0)
  from {schema}.leases;
