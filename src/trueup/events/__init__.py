"""What happened, as values. The core emits them; logs, metrics, alerts and pages subscribe.

An event's name is stable and so are its fields: `docs/reference/events.md` lists them and a test compares. Events may be emitted from
any thread. Emitting never fails: a subscriber that raises is reported on the `trueup.events` logger, and the others still get the
event.

Each noun has its file, and every event in it is a name of this package; all other packages import from here.
"""

from __future__ import annotations

from trueup.events.database import *
from trueup.events.event import Event as Event
from trueup.events.event import Events as Events
from trueup.events.event import Subscriber as Subscriber
from trueup.events.jobs import *
from trueup.events.leases import *
from trueup.events.reconcilers import *
from trueup.events.rows import *
from trueup.events.schedules import *
from trueup.events.streams import *
from trueup.events.workers import *

# A pickle names the module of a class: it is this one, whichever file the class is written in.
for _each in tuple(globals().values()):
    if isinstance(_each, type) and _each.__module__.startswith(f"{__name__}."):
        _each.__module__ = __name__
del _each
