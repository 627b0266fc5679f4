"""Row-level security of a user's table, as far as it keeps a reconciler from its rows.

PostgreSQL does not report that a policy hides a row. A sweep that cannot see rows would silently find nothing to do, forever. So a
table on which policies apply to the worker's role is refused, unless they were made for this role: a policy that names it, with any
condition, or one without a condition. A policy for all roles usually depends on a setting of the session (the current tenant) that no
worker has.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

COMMANDS = {"r": "SELECT", "w": "UPDATE", "d": "DELETE"}
ALL = "*"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that applies to the worker's role. Field order is that of `tables/policies.sql`."""

    name: str  # quoted where it has to be
    command: str  # r, a, w, d or * for all
    permissive: bool  # one of these is enough; of the others, all have to agree
    meant: bool  # for this role


def why_hidden(policies: Collection[Policy], table: str, role: str, *, deletes: bool) -> str | None:
    """Why this role may not find rows, or not lock, change or delete them; and what to do. None when it may."""
    needed = ("r", "w", "d") if deletes else ("r", "w")  # to lock a row is to update it, for a policy
    asked = {command: [each for each in policies if each.command in (command, ALL)] for command in needed}
    way_out = f"ALTER ROLE {role} BYPASSRLS"
    for each in chain.from_iterable(asked.values()):
        if not each.permissive and not each.meant:
            return (
                f"row-level security applies to the role {role}, and the restrictive policy {each.name} applies to every role: "
                f"it would silently hide rows; run: ALTER POLICY {each.name} ON {table} TO … with the roles it "
                f"is meant for, or: {way_out}"
            )
    closed = [command for command in needed if not any(each.permissive and each.meant for each in asked[command])]
    if not closed:
        return None
    others = dict.fromkeys(each.name for command in closed for each in asked[command] if each.permissive)
    there = f" ({', '.join(others)}: for every role, with a condition)" if others else ""
    return (
        f"row-level security applies to the role {role}, and no policy for {', '.join(COMMANDS[command] for command in closed)} "
        f"names it{there}: all rows would be hidden; run: CREATE POLICY trueup ON {table} TO {role} USING (true), or: {way_out}"
    )
