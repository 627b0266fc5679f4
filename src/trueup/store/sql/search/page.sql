-- Jobs that match, with ids from `least` up to below `before`, newest first: one step of a search that looks at a bounded range at a
-- time. Index: jobs_pkey, history_id; states that are not asked for are not looked at.
-- Moments of ended jobs from before the table refused unreadable ones are shown as the nearest readable one.
(select id, kind, queue, state, priority, attempt, max_attempts, run_at, enqueued_at, claimed_at, null::timestamptz as finished_at, errors -> -1 as error, progress, null::text as reason, holder, schedule
   from {schema}.jobs
  where id >= %(least)s::bigint and id < %(before)s::bigint and state = any(%(states)s::text[])
    and (%(kinds)s::text[] is null or kind = any(%(kinds)s::text[])) and (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
    and attempt >= %(attempts)s::int
    and (%(after)s::timestamptz is null or enqueued_at >= %(after)s::timestamptz) and (%(until)s::timestamptz is null or enqueued_at < %(until)s::timestamptz)
    and (%(args)s::jsonb is null or args @> %(args)s::jsonb or args @> %(args_as_text)s::jsonb)
    and (%(error)s::text is null or strpos(lower(coalesce(errors -> -1 ->> 'type', '') || ': ' || coalesce(errors -> -1 ->> 'message', '')), lower(%(error)s::text)) > 0)
    and (%(schedule)s::text is null or schedule = %(schedule)s::text)
  order by id desc limit %(limit)s::int)
union all
(select id, kind, queue, state, priority, attempt, max_attempts, greatest('0002-01-01 00:00:00+00'::timestamptz, least(run_at, '9000-01-01 00:00:00+00'::timestamptz)), enqueued_at, claimed_at, finished_at, errors -> -1, progress, reason, holder, schedule
   from {schema}.history
  where id >= %(least)s::bigint and id < %(before)s::bigint and state = any(%(states)s::text[])
    and (%(kinds)s::text[] is null or kind = any(%(kinds)s::text[])) and (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
    and attempt >= %(attempts)s::int
    and (%(after)s::timestamptz is null or enqueued_at >= %(after)s::timestamptz) and (%(until)s::timestamptz is null or enqueued_at < %(until)s::timestamptz)
    and (%(args)s::jsonb is null or args @> %(args)s::jsonb or args @> %(args_as_text)s::jsonb)
    and (%(error)s::text is null or strpos(lower(coalesce(errors -> -1 ->> 'type', '') || ': ' || coalesce(errors -> -1 ->> 'message', '')), lower(%(error)s::text)) > 0)
    and (%(schedule)s::text is null or schedule = %(schedule)s::text)
  order by id desc limit %(limit)s::int)
order by id desc limit %(limit)s::int;
