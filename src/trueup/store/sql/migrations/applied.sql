-- The steps this schema has.
select number, step from {schema}.migrations;
