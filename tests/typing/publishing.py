"""What users write who publish to NATS, type-checked and never run. See `api.py`."""

from __future__ import annotations

from typing import assert_type

from trueup import App, Handle, Retry, To
from trueup.integrations.nats import Nats, Published, Stream

app = App()
nats = Nats(app, "nats://127.0.0.1:4222", stream=Stream("ORDERS", subjects=["orders.>"]), retry=Retry(max_attempts=3))


async def publish() -> None:
    assert_type(await nats.publish.enqueue("orders.paid", {"order": 17}), Handle[Published])
    await nats.publish.using(delay="5m").enqueue("orders.paid", 17, message_id="order:17", headers={"X-Kind": "paid"})
    To("told", then=[nats.publish.call("orders.paid", None)])
    assert_type((await (await nats.publish.enqueue("orders.paid", [])).result())["duplicate"], bool)
    await nats.publish.enqueue(17, {})  # type: ignore[arg-type]
    await nats.publish.enqueue("orders.paid")  # type: ignore[call-arg]
    await nats.publish.enqueue("orders.paid", {}, id="order:17")  # type: ignore[call-arg]
    await nats.ensure_stream(update=True)
    await nats.aclose()
