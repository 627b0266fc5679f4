-- Deletes every job, tick, sweep, row record and action: between tests that commit. No worker sends it.
truncate {schema}.jobs, {schema}.history, {schema}.unique_windows, {schema}.ticks, {schema}.sweeps, {schema}.rows, {schema}.actions;
