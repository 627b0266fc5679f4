-- Runs a statement over many rows that the database has refused because of some of them: a part of the rows at a time, each part in a
-- subtransaction. A part that is refused is searched by halves for its first culprit. So all others are done within one transaction and
-- one round trip, and what is said about a refused row is said about that row. Only adds; workers of an older release halve the
-- statement themselves.
--
-- `statement` takes the first and the last row as $1 and $2. It returns (key, verdict), which come back as they are. A refused row
-- comes back by its number (`nth`), with its SQLSTATE, message and constraint. The last line has the number of the first row that was
-- not tried, because `seconds` had passed. Two errors that come after that time are raised: one of the first part, which has taken too
-- long to be searched, and a cancelled statement, which may be no fault of a row.
create function {schema}.one_by_one(statement text, count int, seconds float8)
  returns table (key text, verdict text, nth int, code text, said text, violated text)
  language plpgsql
  set plan_cache_mode = force_generic_plan
as $$
declare
  name constant text := pg_catalog.format('trueup_%s', pg_catalog.gen_random_uuid());
  until constant timestamptz := pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => seconds);
  most constant int := 32;
  size int := most;  -- smaller where one refused row follows upon another
  first int := 1;
  last int;
  refused_to int := 0;  -- one of the rows from `first` to here is refused
  one record;
  keys text[];
  verdicts text[];
begin
  execute pg_catalog.format('prepare %I (int, int) as %s', name, statement);
  begin
    while first <= count and pg_catalog.clock_timestamp() < until loop
      last := case when first < refused_to then (first + refused_to - 1) / 2
                   when first = refused_to then first
                   else least(first + size - 1, count) end;
      begin
        keys := array[]::text[];
        verdicts := array[]::text[];
        for one in execute pg_catalog.format('execute %I (%s, %s)', name, first, last) loop
          keys := pg_catalog.array_append(keys, one.key);
          verdicts := pg_catalog.array_append(verdicts, one.verdict);
        end loop;
      exception when query_canceled or assert_failure or others then
        if pg_catalog.clock_timestamp() >= until and (first = 1 or sqlstate = '57014') then
          raise;
        elsif last > first then
          refused_to := last;
          continue;
        end if;
        get stacked diagnostics code = returned_sqlstate, said = message_text, violated = constraint_name;
        nth := first;
        return next;
        first := first + 1;
        size := greatest(1, size / 4);
        continue;
      end;
      return query select k, v, null::int, null::text, null::text, null::text from unnest(keys, verdicts) as u(k, v);
      first := last + 1;
      size := least(most, case when first > refused_to then size * 2 else size end);
    end loop;
  exception when query_canceled or assert_failure or others then
    execute pg_catalog.format('deallocate %I', name);
    raise;
  end;
  execute pg_catalog.format('deallocate %I', name);
  nth := first;
  return next;
end $$;
