-- Leases of users' own code. A row stays for ever, because its term must only grow; `lease_until` in the past means free.

create table {schema}.leases (
  name         text primary key,
  holder       uuid,
  label        text,
  term         bigint not null,
  lease_until  timestamptz not null,
  acquired_at  timestamptz not null,
  renewed_at   timestamptz not null
) with (fillfactor = 50);
