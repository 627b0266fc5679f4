"""WHICH ROWS: rows of users' own tables that are stale or due, and what is to become of them. Pure: no database here."""
