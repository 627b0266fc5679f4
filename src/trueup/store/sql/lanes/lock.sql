-- Takes a lane for this transaction: only its taker may claim through it. No row back: somebody else is claiming right now.
-- The claim is a statement of its own, after this one, because only a fresh snapshot sees what the previous taker claimed.
select coalesce(%(now)s::timestamptz, clock_timestamp()) as now, next_start_at, last_key from {schema}.lanes where lane = %(lane)s for update skip locked;
