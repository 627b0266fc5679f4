from flask import Flask, abort, request

from shop.database import Order, sessions
from shop.jobs import charge

web = Flask(__name__)


@web.post("/orders")
def place():
    with sessions.begin() as session:
        order = Order(email=str(request.get_json().get("email", "")))
        session.add(order)
        session.flush()
        job = charge.using(tx=session).enqueue_sync(order.id)  # stored with the order, or not at all
        if "@" not in order.email:
            abort(422)  # after everything was written
    return {"order": order.id, "job": job.id}, 201


@web.get("/orders/<int:order_id>")
def show(order_id: int):
    with sessions() as session:
        order = session.get(Order, order_id) or abort(404)
        return {"state": order.state, "tracking_number": order.tracking_number}
