-- Forgets a schedule that people made; its ledger stays. Returns its name.
delete from {schema}.schedules where name = %(name)s and (origin = 'people' or state = 'retired') returning name;
