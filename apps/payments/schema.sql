-- The tables as they are today, after all of migrations/: for reading. A test compares the two.

create schema if not exists app;

create table app.payment_requests (
  id                     uuid primary key default gen_random_uuid(),
  chain_id               text not null,                -- as CAIP-2 has it: eip155:1
  address                text not null,                -- for this request alone
  token                  text,                         -- null: the chain's own coin
  expected_amount        numeric(78, 0) check (expected_amount > 0),  -- in the smallest unit; null: whatever comes
  status                 text not null default 'pending'
                         constraint payment_requests_status
                         check (status in ('pending', 'detected', 'confirmed', 'expired', 'failed', 'reorged')),
  expires_at             timestamptz not null check (expires_at between '1970-01-01' and '9000-01-01'),  -- not infinity
  created_at             timestamptz not null default now() check (created_at between '1970-01-01' and '9000-01-01'),
  status_changed_at      timestamptz not null default now(),
  received_amount        numeric not null default 0,   -- on the chain now. Sums have no limit: a token may say it moved anything
  late_amount            numeric not null default 0,   -- of that, after the expiry
  excess_amount          numeric not null default 0,   -- of that, beyond what was asked for
  reconcile_lease_owner  text,                         -- who has it; null: nobody
  reconcile_lease_until  timestamptz,
  next_observation_at    timestamptz default now(),    -- null: never again
  observed_at            timestamptz,
  settlement_count       int not null default 0,
  first_block            bigint,                       -- where reading the chain for it begins
  scanned_block          bigint,                       -- read up to here for good
  scanned_hash           text
);

-- One payment must not settle two requests, however their addresses are spelt: hexadecimal ones are the same in capitals.
create unique index payment_requests_address on app.payment_requests (chain_id, address, token) nulls not distinct;
create unique index payment_requests_spelling on app.payment_requests (
  chain_id,
  (case when address ilike '0x%' then lower(address) else address end),
  (case when token ilike '0x%' then lower(token) else token end)
) nulls not distinct;
create index payment_requests_created on app.payment_requests (created_at, id);
-- Serves the claim: of each status, those that have waited longest for a look.
create index payment_requests_due on app.payment_requests (status, next_observation_at, id)
 where next_observation_at is not null;

-- What was seen on the chain. `seen_in` says where it is now; a transfer that is gone stays here, without its block.
create table app.payment_request_settlements (
  request_id      uuid not null references app.payment_requests on delete cascade,
  tx_hash         text not null,
  transfer_index  int not null,                    -- -1: the transaction itself; else which of its token's transfers to the address
  amount          numeric(78, 0) not null check (amount > 0),
  seen_in         text not null check (seen_in in ('mempool', 'block', 'nowhere')),
  block_number    bigint,
  block_hash      text,
  block_at        timestamptz,
  confirmations   int not null,                    -- counted until there are enough
  first_seen_at   timestamptz not null,            -- by the database's clock
  first_mined_at  timestamptz,                     -- by the block's
  late            boolean not null,
  primary key (request_id, tx_hash, transfer_index),
  check ((seen_in = 'block') = (block_number is not null and block_hash is not null and block_at is not null))
);
