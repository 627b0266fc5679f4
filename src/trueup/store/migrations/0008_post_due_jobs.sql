-- Only workers of older releases claimed in the order of these.

drop index if exists {schema}.jobs_ready;
drop index if exists {schema}.jobs_turns;
