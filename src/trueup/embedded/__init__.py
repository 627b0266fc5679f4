"""An embedded PostgreSQL, for projects that have none yet.

`binaries` finds the programs, `cluster` runs one data directory, `embedded` shares one server between the processes of a
project, and `keeper` is the process that stops it after the last of them.
"""
