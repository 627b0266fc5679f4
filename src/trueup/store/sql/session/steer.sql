-- For the statements of this transaction only: walk indexes in their order, whatever the statistics say.
select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
       -- statements that the server keeps are planned once, for all values
       set_config('plan_cache_mode', 'force_generic_plan', true),
       -- what is switched off still counts as costly up to PostgreSQL 17, and would be worth compiling: 200 ms for each claim
       set_config('jit', 'off', true),
       -- and a process frozen before its commit must not keep its locks: its worker's row could not be rescued
       set_config('idle_in_transaction_session_timeout', '2s', true);
