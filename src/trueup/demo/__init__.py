"""`trueup demo`: a day of downtime survived, told with the application `apps/birthdays` on an embedded PostgreSQL, and proved."""
