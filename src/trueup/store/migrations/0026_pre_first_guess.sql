-- As `one_by_one` of 0021, except that a refused row is found with fewer tries: PostgreSQL counts the rows that a transaction has written,
-- those of a subtransaction that was rolled back included, so the row after as many is tried alone, behind those before it. Where that
-- says nothing (the error came after the last row, the table is partitioned, nothing is counted), the part is searched by halves. The
-- parts are as long as the way between two refused rows. What a trigger sets for the session (a role, a DateStyle) ends with its part:
-- statements for the other rows would be refused because of it. Only adds; workers of an older release call the function with three parameters.
--
-- `changed` is the table that the statement writes to, null to search by halves; everything else is as in 0021.
create function {schema}.one_by_one(statement text, count int, seconds float8, changed oid)
  returns table (key text, verdict text, nth int, code text, said text, violated text)
  language plpgsql
  set plan_cache_mode = force_generic_plan
as $$
declare
  name constant text := pg_catalog.format('trueup_%s', pg_catalog.gen_random_uuid());
  until constant timestamptz := pg_catalog.clock_timestamp() + pg_catalog.make_interval(secs => seconds);
  role constant text := pg_catalog.current_setting('role');
  datestyle constant text := pg_catalog.current_setting('datestyle');
  most constant int := 32;
  size int := most;
  first int := 1;
  last int;
  refused_last int := 0;  -- the refused row before
  refused_to int := 0;  -- one of the rows from `first` to here is refused
  guessed boolean := false;  -- `refused_to` itself, by the number of rows that were written before it
  written bigint;
  one record;
  keys text[];
  verdicts text[];
begin
  execute pg_catalog.format('prepare %I (int, int) as %s', name, statement);
  begin
    while first <= count and pg_catalog.clock_timestamp() < until loop
      last := case when first > refused_to then least(first + size - 1, count)
                   when first = refused_to then first
                   when guessed then refused_to - 1
                   else (first + refused_to - 1) / 2 end;
      written := pg_catalog.pg_stat_get_xact_tuples_updated(changed) + pg_catalog.pg_stat_get_xact_tuples_deleted(changed);
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
          written := pg_catalog.pg_stat_get_xact_tuples_updated(changed) + pg_catalog.pg_stat_get_xact_tuples_deleted(changed) - written;
          if sqlstate in ('23505', '23P01') then
            written := greatest(0, written - 1);  -- the row itself is counted, too
          end if;
          guessed := (not guessed and written <= last - first) is true;
          refused_to := case when guessed then first + written else last end;
          continue;
        end if;
        get stacked diagnostics code = returned_sqlstate, said = message_text, violated = constraint_name;
        nth := first;
        return next;
        size := least(most, first - refused_last);
        refused_last := first;
        first := first + 1;
        guessed := false;
        continue;
      end;
      perform pg_catalog.set_config('role', role, false), pg_catalog.set_config('datestyle', datestyle, false);
      return query select k, v, null::int, null::text, null::text, null::text from unnest(keys, verdicts) as u(k, v);
      first := last + 1;
      if first > refused_to then
        size := least(most, size * 2);
        guessed := false;
      end if;
    end loop;
  exception when query_canceled or assert_failure or others then
    execute pg_catalog.format('deallocate %I', name);
    raise;
  end;
  execute pg_catalog.format('deallocate %I', name);
  nth := first;
  return next;
end $$;
