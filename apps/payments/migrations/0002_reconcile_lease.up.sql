-- The columns that reconcilers share. Rows that are there already are nobody's, and due at once unless they were over long ago.
alter table app.payment_requests
  add column reconcile_lease_owner  text,
  add column reconcile_lease_until  timestamptz,
  add column next_observation_at    timestamptz default now(),  -- null: never again
  add column observed_at            timestamptz,
  add column settlement_count       int not null default 0,
  add column first_block            bigint,                     -- where reading the chain for it begins
  add column scanned_block          bigint,                     -- read up to here for good
  add column scanned_hash           text;

update app.payment_requests set next_observation_at = null
 where status = 'failed' or status in ('confirmed', 'expired') and status_changed_at < now() - interval '1 day';

-- Serves the claim: of each status, those that have waited longest for a look.
create index payment_requests_due on app.payment_requests (status, next_observation_at, id)
 where next_observation_at is not null;
