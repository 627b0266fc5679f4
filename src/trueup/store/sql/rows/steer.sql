-- For the statements of this transaction only: none may take long on a table that is not ours, and a process frozen before its
-- commit must not keep its locks.
-- No sorts where an index gives the order: of a table filled a moment ago the planner believes that few rows are in any state, and
-- would read and sort the whole backlog for every claim. Nothing else is switched off: without a fitting index a table is read
-- from end to end and sorted as before, where a walk along an index made for something else would be slower by far.
-- No just-in-time compilation either: up to PostgreSQL 17 an unavoidable sort makes the plan look worth compiling.
-- A key that is a float is found again by its text: that must have all its digits.
select set_config('statement_timeout', {milliseconds}, true), set_config('lock_timeout', {lock}, true),
       set_config('idle_in_transaction_session_timeout', '2s', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
       set_config('extra_float_digits', '1', true),
       case when current_setting('transaction_timeout', true) is not null then set_config('transaction_timeout', '0', true) end;
