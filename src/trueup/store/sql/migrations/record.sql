-- Written in the step's own transaction: a step and its record are both there or neither.
insert into {schema}.migrations (number, step, name) values (%(number)s, %(step)s, %(title)s);
