-- For the rest of this transaction: whoever only wants to look does not wait long for somebody who rebuilds the table. And rows that
-- were found are fetched by their key: that a join reads the table through because this is quicker says nothing about the search.
select set_config('lock_timeout', %(milliseconds)s::text, true), set_config('statement_timeout', %(milliseconds)s::text, true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true);
