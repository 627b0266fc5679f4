-- Schedules: rows that all planners follow, and the ledger of their ticks. Only adds, so older workers run on beside it.

alter table {schema}.jobs add column schedule text, add column due_at timestamptz;
create index jobs_of_schedule on {schema}.jobs (schedule) where schedule is not null;
alter table {schema}.history add column schedule text, add column due_at timestamptz;

-- What fires when. `decided_until` is the watermark: every tick up to it has its verdict, for ever, also when the ledger has been pruned.
create table {schema}.schedules (
  name           text primary key,
  origin         text not null constraint schedules_origin check (origin in ('code', 'people')),
  state          text not null default 'active' constraint schedules_state check (state in ('active', 'paused', 'retired')),
  spec           jsonb not null,
  policy         jsonb not null,
  kind           text not null,
  queue          text not null,
  lane           text not null,
  priority       int not null default 0,
  max_attempts   int not null,
  args           jsonb not null default '{{}}',
  version        bigint not null default 1,
  next_due_at    timestamptz,
  decided_until  timestamptz not null,
  note           text,
  created_at     timestamptz not null,
  changed_at     timestamptz not null
) with (fillfactor = 70);
create index schedules_due on {schema}.schedules (next_due_at) where state = 'active';

-- How a schedule was at each time: what was expected of it is judged by the version of that time.
create table {schema}.schedule_versions (
  name     text not null,
  version  bigint not null,
  since    timestamptz not null,
  state    text not null,
  spec     jsonb not null,
  primary key (name, version)
);

-- The ledger: every tick is fired, or skipped with a reason. A row of skipped ticks may stand for `count` of them in a row.
create table {schema}.ticks (
  schedule     text not null,
  due_at       timestamptz not null,
  last_due_at  timestamptz not null,
  count        int not null default 1,
  outcome      text not null constraint ticks_outcome check (outcome in ('fired', 'skipped')),
  reason       text,
  job_id       bigint,
  version      bigint not null,
  decided_at   timestamptz not null,
  primary key (schedule, due_at)
) partition by range (due_at);
create table {schema}.ticks_rest partition of {schema}.ticks default;
