-- When a walk past every row of a reconciler ended, how many rows it passed over that were known already, and the table's count of
-- writes when it began: with these the fleet decides when another walk is worth its cost.
alter table {schema}.reconcilers add column walked_at timestamptz;
alter table {schema}.reconcilers add column walked_past bigint;
alter table {schema}.reconcilers add column walked_writes bigint;
