"""Orders without a web framework: `python orders.py place ada@example.com`, and `trueup worker` beside it."""

import asyncio
import sys

from trueup import App, Context, Row, To

app = App()  # TRUEUP_DATABASE_URL or DATABASE_URL; without them an embedded PostgreSQL under ./.trueup
orders = app.table("orders", key="id", state="state", changed_at="state_changed_at")

TABLE = """
create table if not exists orders (
  id bigint generated always as identity primary key,
  email text not null,
  state text not null default 'placed',
  state_changed_at timestamptz not null default now(),
  tracking_number text
)
"""


@app.job
async def charge(ctx: Context, order_id: int) -> None:
    async with ctx.transaction() as tx:  # the order is paid and the job is done, or neither
        await tx.execute(
            "update orders set state = 'paid', state_changed_at = now() where id = %s and state = 'placed'", (order_id,)
        )


@orders.reconcile("paid", every="1s")
async def ship(order: Row) -> To:
    return To("shipped", tracking_number=f"AT-{order.id:08}")


async def setup() -> None:
    async with app.transaction() as tx:
        await tx.execute(TABLE)


async def place(email: str) -> int:
    async with app.transaction() as tx:
        inserted = await tx.execute("insert into orders (email) values (%s) returning id", (email,))
        (order_id,) = await inserted.fetchone()
        await charge.using(tx=tx).enqueue(order_id)  # stored with the order, or not at all
        if "@" not in email:
            raise ValueError(f"{email!r} is not an address")  # after everything was written
    return order_id


async def show(order_id: int) -> tuple[str, str | None]:
    async with app.transaction() as tx:
        found = await tx.execute("select state, tracking_number from orders where id = %s", (order_id,))
        return await found.fetchone()


async def main(command: str, *arguments: str) -> None:
    async with app:
        match command, *arguments:
            case ["setup"]:
                await setup()
            case ["place", email]:
                print(await place(email))
            case ["show", order_id]:
                state, tracking_number = await show(int(order_id))
                print(state, tracking_number or "")
            case _:
                sys.exit("usage: python orders.py setup | place EMAIL | show ORDER")


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or ["help"])))
