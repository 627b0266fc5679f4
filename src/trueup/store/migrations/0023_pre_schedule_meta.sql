-- What every job of a schedule's ticks carries as its `meta`. Only adds; ticks that a planner of an older release decides have none.
alter table {schema}.schedules add column meta jsonb;
