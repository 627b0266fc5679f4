-- Inside the holder's own transaction: is this still the newest term, and not released? Fence: (name, holder, term).
-- Locks the row against a takeover until that transaction ends, but not against renewals. No row back: the lease is lost.
-- A process that freezes inside the transaction must not keep the lease forever, so the server ends the session after `silence`
-- without a statement; a shorter idle_in_transaction_session_timeout of the caller's stays. Index: leases_pkey.
with mine as materialized (
  select term from {schema}.leases where name = %(name)s and holder = %(holder)s and term = %(term)s for key share
), now as (
  select current_setting('idle_in_transaction_session_timeout')::interval as silence, make_interval(secs => %(silence)s::float8) as most
)
select mine.term,
       case when now.silence = interval '0' or now.silence > now.most
            then set_config('idle_in_transaction_session_timeout', %(silence_ms)s::text, true) end
  from mine, now;
