"""WHICH ROWS: selects rows of users' own tables that are stale or due, and decides what becomes of them. Pure: no database here."""
