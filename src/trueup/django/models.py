"""trueup's tables for reading: the admin shows them, and queries may join them. trueup alone writes to them."""

from __future__ import annotations

from typing import Any

from django.db import models

from trueup.django import get_app


def table(name: str) -> str:
    """Django quotes the whole name, so the schema's closing and the table's opening quote are in it."""
    return f'{get_app().settings.schema}"."{name}'


class ReadOnly(models.QuerySet):
    """Raises TypeError for every write."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "trueup's tables are read-only for Django; use app.jobs, the admin's actions or `manage.py trueup`"
        )

    create = bulk_create = get_or_create = update_or_create = update = bulk_update = delete = _refuse
    acreate = abulk_create = aget_or_create = aupdate_or_create = aupdate = abulk_update = adelete = _refuse


class ReadOnlyModel(models.Model):
    """A row of one of trueup's tables, which only trueup writes."""

    objects = ReadOnly.as_manager()

    class Meta:
        abstract = True

    def save(self, *_: Any, **__: Any) -> None:
        type(self).objects.all()._refuse()

    def delete(self, *_: Any, **__: Any) -> Any:
        type(self).objects.all()._refuse()


class JobRow(ReadOnlyModel):
    """The fields that live and ended jobs share."""

    id = models.BigIntegerField(primary_key=True)
    kind = models.TextField()
    queue = models.TextField()
    lane = models.TextField()
    state = models.TextField()
    priority = models.IntegerField()
    run_at = models.DateTimeField()
    args = models.JSONField()
    unique_key = models.TextField(null=True)
    attempt = models.IntegerField()
    max_attempts = models.IntegerField()
    holder = models.UUIDField(null=True)
    enqueued_at = models.DateTimeField()
    claimed_at = models.DateTimeField(null=True)
    progress = models.JSONField(null=True)
    errors = models.JSONField()
    schedule = models.TextField(null=True)

    class Meta(ReadOnlyModel.Meta):
        abstract = True

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class LiveJob(JobRow):
    """A job that is queued or running."""

    cancel_requested_at = models.DateTimeField(null=True)

    class Meta:
        managed = False
        db_table = table("jobs")
        default_permissions = ("view", "change")
        verbose_name = "live job"


class EndedJob(JobRow):
    """A job that is done, dead or cancelled, as long as its history is kept."""

    finished_at = models.DateTimeField()
    result = models.JSONField(null=True)
    reason = models.TextField(null=True)

    class Meta:
        managed = False
        db_table = table("history")
        default_permissions = ("view", "change")
        verbose_name = "ended job"


class SetAsideRows(ReadOnly):
    def as_listed(self) -> Any:
        return self.filter(state__in=("quarantined", "discarded"))  # in the words of the index rows_set_aside


class QuarantinedRow(ReadOnlyModel):
    """A row of one of your tables that its reconciler has set aside, or that a person has discarded from there.

    `term` is that of the claim after which it was set aside. No two rows have the same one.
    """

    term = models.BigIntegerField(primary_key=True)
    reconciler = models.TextField()
    key = models.TextField()
    state = models.TextField()
    was_state = models.TextField(null=True)
    attempt = models.IntegerField()
    changed_at = models.DateTimeField()
    reason = models.TextField(null=True)
    errors = models.JSONField()

    objects = SetAsideRows.as_manager()

    class Meta:
        managed = False
        db_table = table("rows")
        default_permissions = ("view", "change")
        verbose_name = "quarantined row"

    def __str__(self) -> str:
        return f"{self.reconciler} {self.key}"
