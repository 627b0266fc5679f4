-- For the statements of this transaction only: walk indexes in their order, whatever the statistics say.
select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true);
