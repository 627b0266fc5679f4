-- For the statements of this transaction only: walk indexes in their order, regardless of the statistics.
select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
       -- statements that the server keeps are planned once, for all values
       set_config('plan_cache_mode', 'force_generic_plan', true),
       -- up to PostgreSQL 17 a disabled plan node still counts as costly, so the server would compile each claim
       set_config('jit', 'off', true),
       -- and a process frozen before its commit must not keep its locks: its worker's row could not be rescued
       set_config('idle_in_transaction_session_timeout', '2s', true);
