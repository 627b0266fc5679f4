-- Locks a lane for this transaction: only the transaction that holds the lock may claim through it. No row back: another worker is
-- claiming right now. The claim is a separate statement after this one, because only a fresh snapshot sees what the previous lock
-- holder claimed.
select coalesce(%(now)s::timestamptz, clock_timestamp()) as now, next_start_at, last_key from {schema}.lanes where lane = %(lane)s for update skip locked;
