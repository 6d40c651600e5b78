"""Two pages: order something, and see what became of it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from shop.tasks import send_receipt


@csrf_exempt
def order(request: HttpRequest, number: int) -> JsonResponse:
    """Take an order: the receipt is somebody else's work."""
    return JsonResponse({"job": send_receipt.enqueue(number).id})


def job(request: HttpRequest, job_id: str) -> JsonResponse:
    """How far it is."""
    result = send_receipt.get_result(job_id)
    answer: dict[str, Any] = {"status": result.status}
    if result.is_finished:
        answer["receipt"] = result.return_value
    return JsonResponse(answer)


urlpatterns = [path("orders/<int:number>/", order), path("jobs/<str:job_id>/", job)]
