-- Projects and what is known about them, what is made for people, and what has run. May be applied over and over.

-- Moments are bounded where programs read them: there are some that PostgreSQL can keep and Python cannot.

create table if not exists users (
  id             bigint generated always as identity primary key,
  name           text not null,
  timezone       text not null default 'UTC',
  briefing_hour  smallint not null default 8 constraint users_briefing_hour check (briefing_hour between 0 and 23)
);

-- `last_health_check` is when somebody last looked, also in vain: so a project that cannot be checked goes to the end of the queue.
create table if not exists projects (
  id                 bigint generated always as identity primary key,
  name               text not null,
  status             text not null default 'ACTIVE' constraint projects_status check (status in ('ACTIVE', 'PAUSED', 'DONE')),
  last_health_check  timestamptz constraint projects_last_health_check check (last_health_check between '2000-01-01Z' and '9000-01-01Z'),
  health_score       float8 constraint projects_health_score check (health_score between 0 and 100),
  health_level       text constraint projects_health_level check (health_level in ('EXCELLENT', 'GOOD', 'WARNING', 'CRITICAL')),
  health_trend       text constraint projects_health_trend check (health_trend in ('IMPROVING', 'STABLE', 'DECLINING')),
  health_error       text,
  health_failures    int not null default 0,
  created_at         timestamptz not null default now()
);
-- What a claim walks: those never checked first, then the one that has waited longest.
create index if not exists projects_stale on projects (status, last_health_check nulls first, id);

create table if not exists members (
  project_id    bigint not null references projects on delete cascade,
  user_id       bigint not null references users on delete cascade,
  weekly_hours  numeric not null default 0,
  primary key (project_id, user_id)
);
create index if not exists members_of_user on members (user_id);

create table if not exists tasks (
  id          bigint generated always as identity primary key,
  project_id  bigint not null references projects on delete cascade,
  title       text not null,
  status      text not null default 'OPEN' constraint tasks_status check (status in ('OPEN', 'BLOCKED', 'DONE')),
  due_at      timestamptz,
  done_at     timestamptz,
  constraint tasks_done_at check ((status = 'DONE') = (done_at is not null))
);
create index if not exists tasks_of_project on tasks (project_id);

-- One row per look that succeeded. `tick` and `term` say which run it was of, and under which lock.
create table if not exists health_checks (
  id          bigint generated always as identity primary key,
  project_id  bigint not null references projects on delete cascade,
  tick        timestamptz not null,
  term        bigint not null,
  score       float8 not null,
  level       text not null,
  trend       text not null,
  risks       text[] not null,
  parts       jsonb not null,
  began_at    timestamptz not null,
  ended_at    timestamptz not null default clock_timestamp()
);
create index if not exists health_checks_of_project on health_checks (project_id, id);

create table if not exists alerts (
  health_check_id  bigint primary key references health_checks on delete cascade,
  project_id       bigint not null references projects on delete cascade,
  level_before     text not null,
  level_after      text not null,
  created_at       timestamptz not null default now()
);

-- `anchor_day` is the day of the month that was wanted, which a short month cannot have but the next one has again.
create table if not exists report_schedules (
  id          bigint generated always as identity primary key,
  project_id  bigint not null references projects on delete cascade,
  frequency   text not null constraint report_schedules_frequency check (frequency in ('DAILY', 'WEEKLY', 'BIWEEKLY', 'MONTHLY')),
  anchor_day  smallint not null constraint report_schedules_anchor_day check (anchor_day between 1 and 31),
  next_run    timestamptz not null constraint report_schedules_next_run check (next_run between '2000-01-01Z' and '9000-01-01Z'),
  active      boolean not null default true,
  version     int not null default 0,
  last_error  text,
  failures    int not null default 0
);
create index if not exists report_schedules_due on report_schedules (next_run, id) where active;

-- The key is what makes a second report for one due moment impossible.
create table if not exists reports (
  schedule_id  bigint not null references report_schedules on delete cascade,
  due_at       timestamptz not null,
  project_id   bigint not null references projects on delete cascade,
  content      jsonb not null,
  term         bigint not null,
  began_at     timestamptz not null,
  ended_at     timestamptz not null default clock_timestamp(),
  primary key (schedule_id, due_at)
);

create table if not exists checkpoints (
  id          bigint generated always as identity primary key,
  project_id  bigint not null references projects on delete cascade,
  title       text not null,
  due_on      date not null constraint checkpoints_due_on check (due_on between '2000-01-01' and '9000-01-01'),
  done        boolean not null default false
);
create index if not exists checkpoints_due on checkpoints (due_on) where not done;

-- One of each kind for each due date: a checkpoint that is put off is reminded of anew.
create table if not exists reminders (
  checkpoint_id  bigint not null references checkpoints on delete cascade,
  due_on         date not null,
  kind           text not null constraint reminders_kind check (kind in ('THREE_DAYS', 'ONE_DAY', 'DAY_OF')),
  days_left      int not null,
  created_at     timestamptz not null default now(),
  primary key (checkpoint_id, due_on, kind)
);

-- One for each day on the user's own calendar.
create table if not exists briefings (
  user_id     bigint not null references users on delete cascade,
  day         date not null,
  text        text not null,
  created_at  timestamptz not null default now(),
  primary key (user_id, day)
);

create table if not exists conversations (
  id          bigint generated always as identity primary key,
  user_id     bigint not null references users on delete cascade,
  created_at  timestamptz not null default now()
);

create index if not exists conversations_old on conversations (created_at);

create table if not exists messages (
  id               bigint generated always as identity primary key,
  conversation_id  bigint not null references conversations on delete cascade,
  body             text not null,
  created_at       timestamptz not null default now()
);
create index if not exists messages_old on messages (created_at);
create index if not exists messages_of_conversation on messages (conversation_id);

-- When which tick was worked on, under which term: a new one each time the lock is taken. What has no end was cut off.
create table if not exists runs (
  job         text not null,
  tick        timestamptz not null,
  attempt     int not null,
  term        bigint not null,
  instance    text not null,
  began_at    timestamptz not null default clock_timestamp(),
  ended_at    timestamptz,
  succeeded   int,
  failed      int,
  primary key (job, tick, term)
);
create index if not exists runs_latest on runs (job, began_at);

-- For people: who is briefed when, on their own clocks.
create or replace view briefing_hours as
select id as user_id, name, timezone, briefing_hour from users order by id;
