"""Jobs and quarantined rows in Django's admin, read-only, with actions for operators.

The actions are those of `app.jobs` and `app.reconcilers`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.utils.functional import cached_property
from django.utils.html import format_html

from trueup.django import get_app
from trueup.django.models import EndedJob, LiveJob, QuarantinedRow
from trueup.errors import NotFound
from trueup.masking import mask_value
from trueup.operate.acting import acting

MAX_COUNT = 10_000  # jobs counted for the number of pages


class BoundedPaginator(Paginator):
    """Stops counting at MAX_COUNT, so that a history of millions is not counted for every page."""

    @cached_property
    def count(self) -> int:
        return int(self.object_list[: MAX_COUNT + 1].count())


class ColumnFilter(admin.SimpleListFilter):
    """Filters by the column `parameter_name`."""

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset if self.value() is None else queryset.filter(**{self.parameter_name: self.value()})


class KindFilter(ColumnFilter):
    """The kinds that the project declares; reading them from the table would scan all of it."""

    title = parameter_name = "kind"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, kind) for kind in sorted(job.kind for job in get_app().registry)]


class StateFilter(ColumnFilter):
    title = parameter_name = "state"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(state, state) for state in model_admin.states]


class ReadOnlyAdmin(admin.ModelAdmin):
    """Nothing can be edited. `permission` is for the actions."""

    states: tuple[str, ...] = ()
    permission = ""
    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    hidden: tuple[str, ...] = ("errors",)  # shown as text

    def get_queryset(self, request: Any) -> Any:
        return self.model.objects.using(get_app().alias).order_by(*self.ordering)

    def get_fields(self, request: Any, obj: Any = None) -> list[str]:
        names = [field.name for field in self.model._meta.fields if field.name not in self.hidden]
        return [*names, *(f"{name}_shown" for name in self.hidden if hasattr(self.model, name))]

    def get_readonly_fields(self, request: Any, obj: Any = None) -> list[str]:
        return self.get_fields(request, obj)

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_operate_permission(self, request: Any) -> bool:
        """For the actions."""
        return bool(request.user.has_perm(self.permission))

    @admin.display(description="errors")
    def errors_shown(self, failed: Any) -> Any:
        traces = [each.get("traceback") or f"{each['type']}: {each['message']}" for each in failed.errors]
        return format_html("<pre>{}</pre>", "\n\n".join(traces)) if traces else "-"

    @admin.display(description="last error")
    def last_error(self, failed: Any) -> str:
        last = failed.errors[-1] if failed.errors else None
        return f"{last['type']}: {last['message']}"[:100] if last else ""

    def operate(self, request: Any, queryset: Any, done: str, move: Callable[[list[int]], Iterable[int]]) -> None:
        """Act, show the result, and record the user in the admin's log."""
        chosen = {each.pk: each for each in queryset}
        try:
            with acting(str(request.user), "web"):
                moved = [chosen[pk] for pk in move(list(chosen))]
        except NotFound as error:
            self.message_user(request, str(error), messages.ERROR)
            return
        for each in moved:
            self.log_change(request, each, done)
        rest = len(chosen) - len(moved)
        left = f"; {rest} could not be" if rest else ""
        self.message_user(request, f"{len(moved)} {done}{left}", messages.WARNING if rest else messages.SUCCESS)


class JobAdmin(ReadOnlyAdmin):
    permission = "trueup.change_livejob"
    list_filter = (StateFilter, KindFilter)
    search_fields = ("=id", "=unique_key")
    search_help_text = "the id of a job or its unique key"
    ordering = ("-id",)
    hidden = ("args", "errors", "progress", "result")

    @admin.display(description="args")
    def args_shown(self, job: Any) -> Any:
        return as_text(job.args)

    @admin.display(description="progress")
    def progress_shown(self, job: Any) -> Any:
        return as_text(job.progress)

    @admin.display(description="result")
    def result_shown(self, job: Any) -> Any:
        return as_text(job.result)


@admin.register(LiveJob)
class LiveJobAdmin(JobAdmin):
    states = ("queued", "running")
    list_display = ("id", "kind", "state", "queue", "attempt", "max_attempts", "run_at", "last_error")
    actions = ("run_now", "cancel")

    @admin.action(description="Run selected jobs now", permissions=["operate"])
    def run_now(self, request: Any, queryset: Any) -> None:
        self.operate(request, queryset, "made due", get_app().jobs.hurry_sync)

    @admin.action(description="Cancel selected jobs", permissions=["operate"])
    def cancel(self, request: Any, queryset: Any) -> None:
        def move(ids: list[int]) -> set[int]:
            moved = get_app().jobs.cancel_sync(ids, reason=f"cancelled in the admin by {request.user}")
            return moved.cancelled | moved.asked

        self.operate(request, queryset, "cancelled or asked to stop", move)


@admin.register(EndedJob)
class EndedJobAdmin(JobAdmin):
    states = ("dead", "done", "cancelled")
    list_display = ("id", "kind", "state", "queue", "attempt", "finished_at", "reason", "last_error")
    actions = ("revive", "discard")

    @admin.action(description="Revive selected dead jobs", permissions=["operate"])
    def revive(self, request: Any, queryset: Any) -> None:
        self.operate(request, queryset, "revived", get_app().jobs.revive_sync)

    @admin.action(description="Discard selected dead jobs", permissions=["operate"])
    def discard(self, request: Any, queryset: Any) -> None:
        def move(ids: list[int]) -> Iterable[int]:
            return get_app().jobs.discard_sync(ids, reason=f"discarded in the admin by {request.user}")

        self.operate(request, queryset, "discarded", move)


class ReconcilerFilter(ColumnFilter):
    """The reconcilers that the project declares."""

    title = parameter_name = "reconciler"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted(get_app().registered().reconcilers)]


@admin.register(QuarantinedRow)
class QuarantinedRowAdmin(ReadOnlyAdmin):
    states = ("quarantined", "discarded")
    permission = "trueup.change_quarantinedrow"
    list_display = ("reconciler", "key", "state", "was_state", "attempt", "changed_at", "reason", "last_error")
    list_filter = (StateFilter, ReconcilerFilter)
    search_fields = ("=key",)
    search_help_text = "the key of a row"
    ordering = ("-changed_at", "term")
    actions = ("release", "discard")

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).as_listed()

    @admin.action(description="Release selected rows, with all attempts", permissions=["operate"])
    def release(self, request: Any, queryset: Any) -> None:
        self.operate(request, queryset, "released", partial(self.moved, queryset, get_app().reconcilers.release_sync))

    @admin.action(description="Discard selected rows, so that they are not processed again", permissions=["operate"])
    def discard(self, request: Any, queryset: Any) -> None:
        self.operate(request, queryset, "discarded", partial(self.moved, queryset, get_app().reconcilers.discard_sync))

    def moved(self, queryset: Any, move: Callable[[str, list[str]], Iterable[str]], terms: list[int]) -> list[int]:
        """The terms of the rows that were moved; one action per reconciler."""
        chosen = {(row.reconciler, row.key): row.pk for row in queryset if row.pk in terms}
        moved = []
        for reconciler in sorted({name for name, _ in chosen}):
            keys = move(reconciler, [key for name, key in chosen if name == reconciler])
            moved += [chosen[reconciler, key] for key in keys]
        return moved


def as_text(value: Any) -> Any:
    """Readable JSON, with everything that looks like a secret hidden."""
    if value is None:
        return "-"
    return format_html("<pre>{}</pre>", json.dumps(mask_value(value), indent=2, ensure_ascii=False))
