-- Monitored addresses, the local copy of their transactions, and the jobs that compare it with the chain. May be applied over and over.

-- `canonical`: hexadecimal addresses are the same in capitals, where they carry a checksum; others are not. As chains.canonical has it.
create table if not exists addresses (
  id                     bigint generated always as identity primary key,
  address                text not null,
  canonical              text generated always as (case when address ilike '0x%' then lower(address) else address end) stored,
  chain                  text not null,
  is_monitored           boolean not null default true,
  last_reconciled_block  bigint constraint addresses_block check (last_reconciled_block >= 0),
  created_at             timestamptz not null default now(),
  unique (chain, canonical)
);

-- Where its history begins for us; null: a little before the block at which it is first looked at.
alter table addresses add column if not exists first_block bigint constraint addresses_first_block check (first_block >= 0);

-- One row per transaction of the chain, whichever of our addresses it concerns. `seen_by_job` is the newest job that has found it
-- on the chain: what no job as new as this one has seen is not there any more.
create table if not exists transactions (
  id               bigint generated always as identity primary key,
  chain            text not null,
  hash             text not null,
  block_number     bigint not null,
  from_address     text not null,
  to_address       text,
  value            numeric(78, 0) not null,
  fee              numeric(78, 0) not null,
  succeeded        boolean not null,
  seen_by_job      bigint,
  deleted_at       timestamptz,
  deletion_reason  text,
  created_at       timestamptz not null default now(),
  unique (chain, hash)
);

-- A transfer of a token inside a transaction is a row of its own: `transfer` tells it apart, and is empty for the transaction itself.
alter table transactions add column if not exists token text;
alter table transactions add column if not exists transfer text not null default '';
create unique index if not exists transactions_key on transactions (chain, hash, transfer);
alter table transactions drop constraint if exists transactions_chain_hash_key;

create index if not exists transactions_from on transactions (chain, from_address, block_number);
create index if not exists transactions_to on transactions (chain, to_address, block_number);

-- `version` is counted up by every claim: who writes names the version it has claimed, and is refused once somebody else has it.
-- `next_block` is how far a job has come, `next_parent` the block before it: after a crash the next one goes on from there, if that
-- is still the same chain.
create table if not exists reconciliation_jobs (
  id              bigint generated always as identity primary key,
  address         text not null,
  chain           text not null,
  mode            text not null constraint jobs_mode check (mode in ('full', 'partial')),
  effective_mode  text constraint jobs_effective_mode check (effective_mode in ('full', 'partial')),
  status          text not null default 'pending'
                  constraint jobs_status check (status in ('pending', 'running', 'completed', 'failed')),
  tick            timestamptz,
  from_block      bigint,
  to_block        bigint,
  next_block      bigint,
  next_parent     text,
  final_block     bigint,
  checked         int not null default 0,
  added           int not null default 0,
  soft_deleted    int not null default 0,
  discrepancies   int not null default 0,
  attempts        int not null default 0,
  error           text,
  replaced_by     bigint,
  version         int not null default 0,
  created_at      timestamptz not null default now(),
  started_at      timestamptz,
  completed_at    timestamptz
);

-- One active job per address, whoever makes it; and one per address and tick, whatever has become of it.
create unique index if not exists reconciliation_jobs_active
    on reconciliation_jobs (address, chain) where status in ('pending', 'running');
create unique index if not exists reconciliation_jobs_tick
    on reconciliation_jobs (tick, address, chain) where tick is not null;
-- What a claim walks: the oldest of each status first.
create index if not exists reconciliation_jobs_due on reconciliation_jobs (status, created_at, id);
create index if not exists reconciliation_jobs_address on reconciliation_jobs (address, chain, id);

-- What the purges walk.
create index if not exists reconciliation_jobs_over
    on reconciliation_jobs (completed_at) where status in ('completed', 'failed');

-- The times are set by the statement that changes the status, whoever sends it: so a claim has them, too.
create or replace function reconciliation_job_times() returns trigger language plpgsql as $$
begin
  if new.status = 'running' then
    new.started_at := coalesce(old.started_at, clock_timestamp());
  elsif new.status in ('completed', 'failed') then
    new.completed_at := coalesce(old.completed_at, clock_timestamp());
  end if;
  return new;
end
$$;

create or replace trigger reconciliation_job_times before update of status on reconciliation_jobs
   for each row when (new.status is distinct from old.status) execute function reconciliation_job_times();

-- What was done, and why. It outlives what it tells of: no foreign keys.
create table if not exists reconciliation_audit_log (
  id           bigint generated always as identity primary key,
  job          bigint not null,
  transaction  text,
  action       text not null constraint audit_action check (action in ('added', 'soft_deleted', 'discrepancy', 'error')),
  before       jsonb,
  after        jsonb,
  created_at   timestamptz not null default now()
);

create index if not exists reconciliation_audit_log_job on reconciliation_audit_log (job, id);
create index if not exists reconciliation_audit_log_created on reconciliation_audit_log (created_at);
create index if not exists reconciliation_audit_log_transaction on reconciliation_audit_log (transaction);
