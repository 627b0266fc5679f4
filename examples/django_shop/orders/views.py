import json

from django.core.exceptions import ValidationError
from django.http import HttpResponseBadRequest, HttpResponseNotAllowed, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt

from orders.jobs import charge
from orders.models import Order


@csrf_exempt
def place(request):
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    try:
        given = json.loads(request.body)
        order = Order(email=given["email"], total=given["total"])
        order.full_clean()
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        return HttpResponseBadRequest(str(error))
    order.save()
    job = charge.enqueue_sync(order.pk)  # stored with the order, or not at all
    return JsonResponse({"order": order.pk, "job": job.id}, status=201)


def show(request, order_id):
    order = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"state": order.state, "tracking_number": order.tracking_number})
