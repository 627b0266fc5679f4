"""A database as a busy shop would have it: an App with jobs, schedules and reconcilers, and yesterday and today in the tables."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

import orjson
import psycopg

from trueup import App

KINDS = {
    "send_receipt": ("mail", 0.35, 0.6, 0.012),
    "charge_card": ("billing", 0.2, 1.4, 0.03),
    "resize_image": ("media", 0.25, 3.2, 0.004),
    "sync_inventory": ("default", 0.15, 0.9, 0.0),
    "export_report": ("default", 0.05, 24.0, 0.01),
}
ERRORS = {
    "send_receipt": ("SMTPRecipientsRefused", "550 5.1.1 mailbox unavailable: nobody@example.org"),
    "charge_card": ("CardDeclined", "issuer answered 51: insufficient funds"),
    "resize_image": ("UnidentifiedImageError", "cannot identify image file"),
    "export_report": ("ReadTimeout", "no answer from warehouse.example within 30 s"),
}
TRACEBACK = """Traceback (most recent call last):
  File "shop/jobs.py", line 41, in charge_card
    receipt = await gateway.charge(order.total, card=order.card)
  File "shop/gateway.py", line 88, in charge
    raise CardDeclined(f"issuer answered {answer.code}: {answer.text}")
shop.gateway.CardDeclined: issuer answered 51: insufficient funds
"""
CARRIER_TRACEBACK = """Traceback (most recent call last):
  File "shop/orders.py", line 57, in ship
    label = await carrier.label(order.address)
  File "shop/carrier.py", line 23, in label
    raise CarrierRefused(f"address not deliverable: {answer.reason}")
shop.carrier.CarrierRefused: address not deliverable: house number missing
"""
HOSTS = ("worker-a", "worker-b", "worker-c")


def shop(url: str, schema: str = "trueup") -> App:
    """The App of the tables below."""
    app = App(url, schema=schema)

    @app.job(queue="billing")
    async def charge_card(order: int, amount: str, card_token: str) -> str:
        return "paid"

    @app.job(queue="mail")
    async def send_receipt(order: int, to: str) -> None: ...

    @app.cron("0 6 * * *", tz="Europe/Berlin")
    async def daily_digest() -> None: ...

    @app.cron("*/15 * * * *")
    async def refresh_rates() -> None: ...

    @app.every("1h")
    async def close_carts() -> None: ...

    @app.cron("30 2 * * *", tz="America/New_York")
    async def settle_books() -> None: ...

    orders = app.table("orders", key="id", state="state", changed_at="changed_at")

    @orders.reconcile("paid", every="30s")
    async def ship_paid_orders(row: object) -> None:
        return None

    return app


def fill(url: str, *, schema: str = "trueup", seed: int = 7, jobs: int = 2400) -> None:
    """Yesterday and today of the shop, up to now by the database's clock. The same seed gives the same data, moved along."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "create table if not exists orders (id bigint primary key, state text not null, changed_at timestamptz not null)"
        )
        _Filling(connection, schema, random.Random(seed)).all(jobs)


class _Filling:
    def __init__(self, connection: psycopg.Connection[tuple[object, ...]], schema: str, dice: random.Random) -> None:
        self.connection = connection
        self.schema = schema
        self.dice = dice
        ((now,),) = connection.execute("select now()").fetchall()
        assert isinstance(now, datetime)
        self.now = now.astimezone(UTC)
        self.holders = [UUID(int=dice.getrandbits(128), version=4) for _ in HOSTS]

    def all(self, jobs: int) -> None:
        self.workers()
        self.history(jobs)
        self.live()
        self.schedules()
        self.rows()
        self.leases()
        self.actions()

    def insert(self, table: str, rows: list[dict[str, object]]) -> None:
        if not rows:
            return
        names = list(rows[0])
        places = ", ".join(f"%({name})s" for name in names)
        with self.connection.cursor() as cursor:
            cursor.executemany(
                f'insert into "{self.schema}".{table} ({", ".join(names)}) values ({places})'.encode(), rows
            )

    def workers(self) -> None:
        declared = {
            "digest": "shop-1",
            "service": "shop",
            "release": "2026.11.2",
            "queues": ["billing", "default", "mail", "media"],
            "kinds": [*KINDS, "daily_digest", "refresh_rates", "close_carts", "settle_books"],
            "lanes": [],
            "schedules": ["close_carts", "daily_digest", "refresh_rates", "settle_books"],
            "reconcilers": ["ship_paid_orders", "expire_carts", "mirror_stock"],
            "living_since": self.now - timedelta(hours=9),
            "started_at": self.now - timedelta(hours=9),
            "seen_at": self.now,
        }
        self.insert("declarations", [declared])
        self.insert(
            "workers",
            [
                {
                    "holder": holder,
                    "host": host,
                    "pid": 4100 + 7 * place,
                    "release": "2026.11.2" if place else "2026.11.1",
                    "queues": ["billing", "default", "mail", "media"] if place < 2 else ["media"],
                    "concurrency": 16 if place < 2 else 4,
                    "started_at": self.now - timedelta(hours=9, minutes=12 * place),
                    "renewed_at": self.now - timedelta(seconds=3 + place),
                    "lease_until": self.now + timedelta(days=1),
                    "declaration": "shop-1",
                    "blocked": self._blocked() if place == 1 else None,
                }
                for place, (host, holder) in enumerate(zip(HOSTS, self.holders, strict=True))
            ],
        )
        down = {"since": self.now - timedelta(hours=11, minutes=40), "until": self.now - timedelta(hours=9)}
        self.insert("downtimes", [down])

    def _blocked(self) -> str:
        at = self.now - timedelta(minutes=5)
        return orjson.dumps({"times": 3, "handler": "resize_image", "seconds": 2.14, "at": at}).decode()

    def history(self, number: int) -> None:
        rows = []
        for job_id in range(1, number + 1):
            ago = 86_400 * (1 - job_id / number) ** 1.6 + self.dice.random() * 20
            finished = self.now - timedelta(seconds=ago)
            kind = self.dice.choices(list(KINDS), [weight for _, weight, _, _ in KINDS.values()])[0]
            queue, _, mean, failing = KINDS[kind]
            took = self.dice.expovariate(1 / mean)
            waited = self.dice.expovariate(1 / 0.4) + (40 * self.dice.random() if 1500 < ago < 2000 else 0)
            dead = self.dice.random() < failing
            state = "dead" if dead else "cancelled" if self.dice.random() < 0.004 else "done"
            rows.append(self._job(job_id, kind, queue, state, finished, waited, took))
        self.insert("history", rows)

    def _job(
        self, job_id: int, kind: str, queue: str, state: str, finished: datetime, waited: float, took: float
    ) -> dict[str, object]:
        claimed = finished - timedelta(seconds=took)
        due = claimed - timedelta(seconds=waited)
        attempts = 4 if state == "dead" else 1
        return {
            "id": job_id,
            "kind": kind,
            "queue": queue,
            "lane": queue,
            "key": "",
            "state": state,
            "priority": 0,
            "run_at": due,
            "args": orjson.dumps(self._args(kind, job_id)).decode(),
            "attempt": attempts,
            "max_attempts": 4,
            "crashes": 0,
            "term": 1000 + job_id,
            "holder": self.holders[job_id % 2],
            "enqueued_at": due,
            "claimed_at": claimed,
            "finished_at": finished,
            "errors": self._errors(kind, attempts, finished, 1000 + job_id) if state == "dead" else "[]",
            "result": '"paid"' if state == "done" and kind == "charge_card" else None,
            "reason": {"dead": "out of attempts", "cancelled": "cancelled by a person"}.get(state),
        }

    def _args(self, kind: str, job_id: int) -> dict[str, object]:
        if kind == "charge_card":
            return {"order": 70_000 + job_id, "amount": "49.90 EUR", "card_token": "tok_5b1f0a77"}
        if kind == "send_receipt":
            return {"order": 70_000 + job_id, "to": f"customer{job_id % 97}@example.org"}
        return {"id": job_id}

    def _errors(self, kind: str, attempts: int, at: datetime, last_term: int) -> str:
        """The first attempt is by a worker of an older release, which did not store who made it."""
        name, message = ERRORS.get(kind, ("ValueError", "bad value"))
        return orjson.dumps(
            [
                {
                    "attempt": attempt,
                    "at": at - timedelta(minutes=4 * (attempts - attempt)),
                    "type": name,
                    "message": message,
                    "traceback": TRACEBACK if kind == "charge_card" else "",
                    **(self._claim(attempt % 3, last_term + attempt - attempts) if attempt > 1 else {}),
                }
                for attempt in range(1, attempts + 1)
            ]
        ).decode()

    def _claim(self, place: int, term: int) -> dict[str, object]:
        return {"holder": self.holders[place], "term": term, "host": HOSTS[place], "pid": 4100 + 7 * place}

    def live(self) -> None:
        rows = []
        for place in range(46):
            kind = self.dice.choice(list(KINDS))
            queue = KINDS[kind][0]
            running = place < 9
            later = not running and place % 3 == 0
            failed = later and kind in ERRORS and place % 2 == 0
            due = self.now + timedelta(seconds=self.dice.randint(20, 900) if later else -self.dice.randint(1, 14))
            rows.append(
                {
                    "id": 900_000 + place,
                    "kind": kind,
                    "queue": queue,
                    "lane": queue,
                    "state": "running" if running else "queued",
                    "run_at": due,
                    "rank": due,
                    "args": orjson.dumps(self._args(kind, 900_000 + place)).decode(),
                    "attempt": 1 if running else 2 if failed else 0,
                    "max_attempts": 4,
                    "term": 9000 + place if running else 0,
                    "holder": self.holders[place % 3] if running else None,
                    "enqueued_at": self.now - timedelta(seconds=self.dice.randint(15, 40)),
                    "claimed_at": self.now - timedelta(seconds=self.dice.randint(1, 9)) if running else None,
                    "errors": self._errors(kind, 2, self.now, 9000 + place) if failed else "[]",
                }
            )
        self.insert("jobs", rows)
        self.connection.execute(f"select setval('\"{self.schema}\".jobs_id_seq', 950000)".encode())

    def schedules(self) -> None:
        specs: dict[str, tuple[dict[str, str], str]] = {
            "close_carts": ({"kind": "every", "interval": "1h", "anchor": "2026-01-01T00:00:00+00:00"}, "active"),
            "daily_digest": ({"kind": "cron", "expr": "0 6 * * *", "tz": "Europe/Berlin", "dst": "debian"}, "active"),
            "refresh_rates": ({"kind": "cron", "expr": "*/15 * * * *", "tz": "UTC", "dst": "debian"}, "active"),
            "settle_books": (
                {"kind": "cron", "expr": "30 2 * * *", "tz": "America/New_York", "dst": "debian"},
                "paused",
            ),
        }
        from trueup.schedules import spec as read
        from trueup.schedules.policy import SchedulePolicy

        for name, (spec, state) in specs.items():
            parsed = read.from_json(spec)
            row = {
                "name": name,
                "origin": "code",
                "state": state,
                "spec": orjson.dumps(spec).decode(),
                "policy": orjson.dumps(SchedulePolicy().to_json()).decode(),
                "kind": name,
                "queue": "default",
                "lane": "default",
                "max_attempts": 4,
                "next_due_at": parsed.next_after(self.now),
                "decided_until": self.now,
                "note": "paused by ann: books are closed by hand until Friday" if state == "paused" else None,
                "created_at": self.now - timedelta(days=40),
                "changed_at": self.now - timedelta(days=40 if state == "active" else 1),
            }
            self.insert("schedules", [row])
            version = {"name": name, "version": 1, "since": self.now - timedelta(days=40), "state": "active"}
            self.insert("schedule_versions", [{**version, "spec": row["spec"]}])
            self.insert(
                "ticks", [self._tick(name, due) for due in parsed.between(self.now - timedelta(hours=24), self.now)]
            )

        # A run ends after its tick: the first job that did stands for it.
        run = 'select id from "{0}".history as h where h.finished_at >= t.decided_at order by h.finished_at limit 1'
        put = f"update \"{{0}}\".ticks as t set job_id = coalesce(({run}), job_id) where outcome = 'fired'"
        self.connection.execute(put.format(self.schema).encode())

    def _tick(self, name: str, due: datetime) -> dict[str, object]:
        ago = self.now - due
        down = timedelta(hours=9) <= ago <= timedelta(hours=11, minutes=40)
        late = self.dice.random() * 0.9 + (95 if self.dice.random() < 0.03 else 0)
        return {
            "schedule": name,
            "due_at": due,
            "last_due_at": due,
            "outcome": "skipped" if down else "fired",
            "reason": "coalesced" if down else None,
            "job_id": None if down else self.dice.randint(1, 2000),
            "version": 1,
            "decided_at": self.now - timedelta(hours=9) if down else due + timedelta(seconds=late),
        }

    def rows(self) -> None:
        declared = {"what": "reconcile", "every": "30s", "mode": "live"}
        listed = {
            "ship_paid_orders": ("rows of orders where state = 'paid'", None),
            "expire_carts": ("rows of carts where state = 'open'", None),
            "mirror_stock": ("rows of stock", 'relation "warehouse_stock" does not exist'),
        }
        for name, (rows, error) in listed.items():
            self.insert(
                "reconcilers",
                [
                    {
                        "name": name,
                        "place": "orders",
                        "declared": orjson.dumps({**declared, "rows": rows}).decode(),
                        "declared_at": self.now - timedelta(days=3),
                        "last_swept_at": self.now - timedelta(seconds=11),
                        "last_error": error,
                        "last_failed_at": self.now - timedelta(seconds=41) if error else None,
                        "failures": 3 if error else 0,
                    }
                ],
            )
        self._sweeps()
        self._set_aside()
        self.connection.execute(
            "insert into orders select i, case when i % 5 = 0 then 'paid' else 'shipped' end, now() - make_interval(secs => i) from generate_series(1, 900) as i"
        )

    def _sweeps(self) -> None:
        sweeps = []
        for minute in range(0, 360, 4):
            for name, size in (("ship_paid_orders", 60), ("expire_carts", 22)):
                at = self.now - timedelta(minutes=minute, seconds=11)
                changed = max(0, int(self.dice.gauss(size, size / 4)))
                retry = self.dice.randint(0, 3)
                sweeps.append(
                    {
                        "reconciler": name,
                        "holder": self.holders[minute % 2],
                        "started_at": at - timedelta(seconds=4),
                        "ended_at": at,
                        "claimed": changed + retry + 9,
                        "changed": changed,
                        "unchanged": 9,
                        "conflict": 0,
                        "retry": retry,
                        "quarantined": 1 if self.dice.random() < 0.03 else 0,
                        "lost": 0,
                        "late": 0,
                        "worst_lateness_s": 12 + 9 * self.dice.random(),
                        "total_lateness_s": changed * 6.0,
                        "lateness": [0, changed + 9, retry, 0, 0, 0, 0, 0, 0],
                    }
                )
        self.insert("sweeps", sweeps)

    def _set_aside(self) -> None:
        rows = []
        for place in range(5):
            changed = self.now - timedelta(minutes=17 * (place + 1))
            rows.append(self._row("ship_paid_orders", str(70_311 + 13 * place), "quarantined", changed))
        rows += [self._row("ship_paid_orders", str(71_000 + place), "resting", self.now) for place in range(34)]
        rows += [self._row("expire_carts", f"cart-{place}", "resting", self.now) for place in range(120)]
        rows += [self._row("ship_paid_orders", str(72_000 + place), "held", self.now) for place in range(6)]
        self.insert("rows", rows)

    def _row(self, name: str, key: str, state: str, changed: datetime) -> dict[str, object]:
        errors = [
            {
                "attempt": attempt,
                "at": changed - timedelta(minutes=5 * (5 - attempt)),
                "type": "CarrierRefused",
                "message": "address not deliverable: house number missing",
                "traceback": CARRIER_TRACEBACK,
            }
            for attempt in range(1, 6)
        ]
        failed = state == "quarantined"
        return {
            "reconciler": name,
            "key": key,
            "state": state,
            "due_at": self.now + timedelta(minutes=self.dice.randint(1, 50)),
            "holder": self.holders[0] if state == "held" else None,
            "term": 12,
            "attempt": 5 if failed else 1,
            "claimed_at": changed - timedelta(seconds=2),
            "changed_at": changed,
            "was_state": "paid",
            "reason": "out of attempts" if failed else None,
            "errors": orjson.dumps(errors).decode() if failed else "[]",
        }

    def leases(self) -> None:
        self.insert(
            "leases",
            [
                {
                    "name": name,
                    "holder": self.holders[place % 2] if held else None,
                    "label": f"{HOSTS[place % 2]}:{4100 + 7 * (place % 2)}" if held else None,
                    "term": 40 + place,
                    "lease_until": self.now + timedelta(days=1) if held else self.now - timedelta(minutes=8),
                    "acquired_at": self.now - timedelta(minutes=14 * (place + 1)),
                    "renewed_at": self.now - timedelta(seconds=4),
                }
                for place, (name, held) in enumerate(
                    {"nightly-export": True, "warehouse-feed": True, "price-import": False}.items()
                )
            ],
        )

    def actions(self) -> None:
        listed: list[tuple[float, str, str, str, str, str | None, int, list[str], str | None]] = [
            (0.3, "ann", "web", "release", "row", "ship_paid_orders", 3, ["70298", "70299", "70301"], None),
            (
                0.9,
                "otto",
                "web",
                "revive",
                "job",
                None,
                212,
                ["1874", "1871", "1866"],
                "all that match kind=charge_card",
            ),
            (2.2, "deploy", "cli", "resume", "queue", "media", 1, [], None),
            (2.6, "deploy", "cli", "pause", "queue", "media", 1, [], "new image service is rolled out"),
            (6.0, "ann", "python", "trigger", "schedule", "daily_digest", 1, ["1310"], None),
            (21.0, "ann", "web", "pause", "schedule", "settle_books", 1, [], "books are closed by hand until Friday"),
        ]
        rows = [
            {
                "at": self.now - timedelta(hours=hours),
                "actor": actor,
                "via": via,
                "host": "ops-1" if via != "python" else "worker-a",
                "action": action,
                "what": what,
                "name": name,
                "count": count,
                "keys": keys,
                "detail": detail,
            }
            for hours, actor, via, action, what, name, count, keys, detail in reversed(listed)
        ]
        self.insert("actions", rows)  # type: ignore[arg-type]
