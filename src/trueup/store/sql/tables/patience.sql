-- For the rest of this transaction: an inspection does not wait long for a session that rebuilds the table.
select set_config('lock_timeout', %(locked)s::text, true), set_config('statement_timeout', %(milliseconds)s::text, true);
