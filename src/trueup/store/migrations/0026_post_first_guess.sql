-- Workers of this release call the function with four parameters.
drop function {schema}.one_by_one(text, int, float8);
