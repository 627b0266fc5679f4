-- For the rest of this transaction: whoever only wants to look does not wait long for somebody who rebuilds the table.
select set_config('lock_timeout', %(milliseconds)s::text, true), set_config('statement_timeout', %(milliseconds)s::text, true);
