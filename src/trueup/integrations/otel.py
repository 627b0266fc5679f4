"""OpenTelemetry (extra `otel`): traces by `app.middleware(OpenTelemetry())`, metrics by `attach_metrics(app.events)`.

A trace goes from the span that enqueues through the job to the jobs that its handler enqueues. The W3C trace context travels in the
job's `meta` (`traceparent`, `tracestate`), whatever propagator the process uses for HTTP. Spans are made around enqueues and handlers
only: a worker that waits for work makes none. Attributes follow the semantic conventions for messaging.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from trueup.errors import ConfigError

try:
    from opentelemetry import context, trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as error:
    raise ConfigError('traces and metrics with OpenTelemetry need its API: pip install "trueup[otel]"') from error

from trueup.integrations.otel_metrics import attach_metrics
from trueup.jobs.failure import from_the_handler, traceback_text
from trueup.jobs.job import HandlerCall
from trueup.jobs.middleware import EnqueueCall
from trueup.jobs.outcome import Discard, Snooze
from trueup.texts import describe, type_name

__all__ = ["OpenTelemetry", "attach_metrics"]

SYSTEM = "trueup"
_W3C = TraceContextTextMapPropagator()
_NOT_ERRORS = (Snooze, Discard, asyncio.CancelledError)  # decisions, and a request to stop


class OpenTelemetry:
    """Producer spans around enqueues, consumer spans around handlers of jobs, internal spans around those of rows and scans.

    `tracer_provider` is the global one unless given.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("trueup", tracer_provider=tracer_provider)

    @contextmanager
    def around_enqueue(self, call: EnqueueCall) -> Iterator[None]:
        operation = "create" if call.operation == "call" else "send"
        attributes = _messaging(operation, call.operation, call.queue)
        with self._tracer.start_as_current_span(
            call.kind,
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            _W3C.inject(call.meta)
            with _ending(span):
                yield
            if call.job_id is not None:
                span.set_attribute("messaging.message.id", str(call.job_id))
            if call.operation == "enqueue_many" and call.created is not None:
                span.set_attribute("messaging.batch.message_count", call.created)

    @asynccontextmanager
    async def around_handler(self, call: HandlerCall) -> AsyncIterator[None]:
        if call.what in ("job", "exhausted"):
            attributes = _messaging("process", "run" if call.what == "job" else "exhausted", call.queue or "")
            attributes |= {"messaging.message.id": str(call.id), "trueup.attempt": call.attempt}
            kind, parent = SpanKind.CONSUMER, _W3C.extract(_texts(call), context.Context())
        else:
            attributes = {f"trueup.{call.what}": call.name}
            if call.id is not None:
                attributes |= {"trueup.row.key": str(call.id), "trueup.attempt": call.attempt}
            kind, parent = SpanKind.INTERNAL, context.Context()
        with (
            self._tracer.start_as_current_span(
                call.name,
                context=parent,
                kind=kind,
                attributes=attributes,
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
            _ending(span),
        ):
            yield


def _texts(call: HandlerCall) -> dict[str, str]:
    """The values that are texts: `meta` may hold others, which a propagator does not expect."""
    return {name: value for name, value in call.meta.items() if isinstance(value, str)}


def _messaging(operation_type: str, operation: str, queue: str) -> dict[str, AttributeValue]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": queue,
        "messaging.operation.type": operation_type,
        "messaging.operation.name": operation,
    }


@contextmanager
def _ending(span: Span) -> Iterator[None]:
    """Records a failure on the span, masked as everywhere else; a snooze, a discard or a cancellation is none."""
    try:
        yield
    except _NOT_ERRORS as error:
        span.set_attribute("trueup.ended", type(error).__name__)
        raise
    except BaseException as error:
        span.add_event("exception", _exception(error))
        span.set_attribute("error.type", type_name(error))
        span.set_status(Status(StatusCode.ERROR, describe(error)))
        raise


def _exception(error: BaseException) -> dict[str, AttributeValue]:
    """The event of `record_exception`, but bounded and with secrets masked."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__") == __name__:
        frames = frames.tb_next
    return {
        "exception.type": type_name(error),
        "exception.message": describe(error),
        "exception.stacktrace": traceback_text(error, from_the_handler(frames)),
    }
