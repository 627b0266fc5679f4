-- The shop's own tables. None has a constraint against doubles: those would hide what the proof looks for.
create schema shop;

create table shop.orders (
  id      bigint generated always as identity primary key,
  amount  int not null
);

-- What was enqueued, and how each job is meant to end; written in the transaction that enqueued it.
create table shop.asked (
  kind    text not null,
  ending  text not null check (ending in ('done', 'dead', 'cancelled')),
  jobs    int not null
);

create table shop.ledger (
  order_id  bigint not null,
  amount    int not null,
  job_id    bigint not null,
  term      bigint not null
);

-- The books of the mail provider, a stranger who only knows idempotency keys.
create table shop.mails (
  key         text primary key,
  order_id    bigint not null,
  deliveries  int not null default 1
);

create table shop.reports (
  job_id      bigint not null,
  attempt     int not null,
  started_at  timestamptz not null default clock_timestamp(),
  ended_at    timestamptz
);

create table shop.pings (
  at  timestamptz not null default clock_timestamp()
);

-- Workers that were killed or frozen, and when their jobs were seen to be with others.
create table shop.losses (
  worker   text not null,
  pid      int not null,
  holder   uuid not null,
  seen_at  timestamptz not null default clock_timestamp()
);
