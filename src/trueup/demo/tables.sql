-- What the demo itself remembers, for its proof. Nothing of the application or of trueup writes here.
create schema demo;

-- Each message that was planned yesterday, and how it is meant to end.
create table demo.expected (
  event_id  uuid not null,
  user_id   bigint not null,
  due_at    timestamptz not null,
  fate      text not null check (fate in ('delivered', 'dead', 'withdrawn', 'later'))
);

-- What a worker had in hand when it was lost, and until when.
create table demo.losses (
  worker       text not null,
  key          text not null,
  term         bigint not null,
  lease_until  timestamptz not null,
  seen_at      timestamptz not null default clock_timestamp()
);
