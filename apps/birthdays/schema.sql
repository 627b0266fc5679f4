-- Users, the messages that are due to them, and what people look at. May be applied over and over.

create table if not exists users (
  id             bigint generated always as identity primary key,
  first_name     text not null,
  last_name      text not null,
  date_of_birth  date not null,
  timezone       text not null,
  created_at     timestamptz not null default now()
);

-- One row per user, kind and year: that key is what makes a second message for one year impossible.
-- `version` is counted up by every change, so that a change while a message is being sent is noticed.
create table if not exists events (
  id                    uuid primary key default gen_random_uuid(),
  user_id               bigint not null references users on delete cascade,
  event_type            text not null default 'birthday',
  target_year           int not null,
  target_timestamp_utc  timestamptz not null,
  status                text not null default 'PENDING'
                        constraint events_status check (status in ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'DEAD')),
  attempts              int not null default 0,
  version               int not null default 0,
  last_error            text,
  next_attempt_at       timestamptz,
  executed_at           timestamptz,
  created_at            timestamptz not null default now(),
  unique (user_id, event_type, target_year)
);

-- PostgreSQL can keep days and moments that Python cannot read, and one of them would end every list that it is in. Rows from before
-- these constraints stay as they are.
alter table users drop constraint if exists users_date_of_birth;
alter table users add constraint users_date_of_birth check (date_of_birth between '0001-01-01' and '9000-01-01') not valid;
alter table events drop constraint if exists events_moments;
alter table events add constraint events_moments
      check (least(target_timestamp_utc, next_attempt_at, executed_at) >= '0001-01-02Z'
             and greatest(target_timestamp_utc, next_attempt_at, executed_at) <= '9001-01-01Z') not valid;

-- By which rules messages are planned; `planned_until` is how far that has come, and null when it has come to the end.
create table if not exists planning (
  only_row       boolean primary key default true constraint planning_one_row check (only_row),
  rules          text not null,
  planned_until  bigint
);

-- What a claim walks: the oldest of each status first.
create index if not exists events_due on events (status, target_timestamp_utc, id);

-- For people: what was sent late, what seems stuck, what was given up.
create or replace view late_events as
select id as event_id, user_id, target_year, target_timestamp_utc as target_time, executed_at as actual_time,
       round(extract(epoch from executed_at - target_timestamp_utc) / 60)::int as lateness_minutes
  from events
 where status = 'COMPLETED' and executed_at > target_timestamp_utc + interval '5 minutes'
 order by executed_at - target_timestamp_utc desc;

create or replace view stuck_events as
select id as event_id, user_id, status, attempts, last_error, next_attempt_at, target_timestamp_utc as target_time,
       now() - target_timestamp_utc as overdue
  from events
 where status in ('PENDING', 'PROCESSING', 'FAILED') and target_timestamp_utc < now() - interval '5 minutes'
 order by target_timestamp_utc;

create or replace view dead_letters as
select e.id as event_id, e.user_id, u.first_name, u.last_name, e.target_year, e.target_timestamp_utc as target_time, e.attempts, e.last_error
  from events as e join users as u on u.id = e.user_id
 where e.status = 'DEAD'
 order by e.target_timestamp_utc;
