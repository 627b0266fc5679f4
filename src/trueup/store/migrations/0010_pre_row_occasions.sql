-- Reconcilers: what a row's claim is about, who had been started when a process died, and why the last sweep failed. Only adds, and
-- replaces one index by a wider one, so older workers run on beside it.

-- `occasion` names what the row was first claimed for: the idempotency key of every attempt has it. `started`: its handler has begun.
-- `whole_key` is the key itself where it is too long for an index; `key` then has its beginning and a digest.
alter table {schema}.rows
  add column occasion   bigint,
  add column started    boolean not null default false,
  add column whole_key  text;

-- A sweep walks on from the last (due_at, key) it has seen.
drop index {schema}.rows_due;
create index rows_due on {schema}.rows (reconciler, due_at, key) where state in ('held', 'resting');

-- The error that ended the last sweep, until one goes through.
alter table {schema}.reconcilers
  add column last_error      text,
  add column last_failed_at  timestamptz,
  add column failures        int not null default 0;

-- Rows whose outcome a trigger of their table undid.
alter table {schema}.sweeps add column undone bigint not null default 0;
