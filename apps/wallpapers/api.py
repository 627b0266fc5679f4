"""The HTTP API: an intent to upload a wallpaper, the upload, and how it is with it."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect

from apps.plain_api import plain_api

from . import rows
from .content import TooLarge
from .decoding import Undecided
from .ids import PATTERN
from .images import MAX_IMAGE_BYTES, MAX_VIDEO_BYTES, Rejected, UnsupportedType
from .intake import Refused
from .rows import Wallpaper
from .service import Service
from .storage import StorageUnavailable

UPLOAD_WITHIN = 300  # seconds for the bytes to come: a client that drips must not hold on to us for ever


def _storable(text: str) -> str:
    if not text.strip() or any(unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") for each in text):
        raise ValueError("text is needed, without control characters")
    return text


Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_storable)]
State = Literal["initiated", "uploading", "stored", "processing", "completed", "failed"]
Id = Annotated[str, Path(pattern=f"^{PATTERN.pattern}$")]


class Intent(BaseModel):
    model_config = ConfigDict(extra="forbid")
    user_id: Text
    original_filename: Text | None = None


class WallpaperOut(BaseModel):
    """As it is stored: whatever got there is shown."""

    model_config = ConfigDict(from_attributes=True)
    id: str
    user_id: str
    upload_state: str
    state_changed_at: datetime
    upload_attempts: int
    processing_error: str | None
    duplicate_of: str | None
    original_filename: str | None
    content_hash: str | None
    mime_type: str | None
    file_size_bytes: int | None
    width: int | None
    height: int | None
    uploaded_at: datetime | None


def make_api(service: Service) -> FastAPI:
    """Without the sweeps: those are started once it listens."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await service.close()

    api = plain_api("Wallpapers", lifespan)
    app = service.app

    @api.exception_handler(StorageUnavailable)
    async def no_storage(_: Request, error: StorageUnavailable) -> JSONResponse:
        detail = {"detail": "the storage cannot be reached; send the picture again"}
        return JSONResponse(detail, status_code=503, headers={"Retry-After": "30"})

    @api.exception_handler(Undecided)
    async def undecided(_: Request, error: Undecided) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=503, headers={"Retry-After": "30"})

    @api.exception_handler(Rejected)
    async def rejected(_: Request, error: Rejected) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=415 if isinstance(error, UnsupportedType) else 422)

    @api.exception_handler(TooLarge)
    async def too_large(_: Request, error: TooLarge) -> JSONResponse:
        return JSONResponse({"detail": f"an image has at most {MAX_IMAGE_BYTES:,} bytes"}, status_code=413)

    @api.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return JSONResponse({"detail": str(error), "duplicate_of": error.row.duplicate_of}, status_code=409)

    @api.post("/wallpapers", status_code=201, response_model=WallpaperOut)
    async def create_intent(intent: Intent) -> Wallpaper:
        config = service.config
        async with app.transaction() as tx:
            has, intents = await rows.count_of_user(tx, intent.user_id)
            if has >= config.max_wallpapers:
                raise HTTPException(409, f"a user has at most {config.max_wallpapers:,} wallpapers")
            if intents >= config.max_intents:
                raise HTTPException(409, f"{intents:,} uploads of this user have not begun yet: begin with those")
            return await rows.create(tx, intent.user_id, intent.original_filename, now=app.clock.now())

    @api.put("/wallpapers/{wallpaper_id}/content", response_model=WallpaperOut)
    async def upload(wallpaper_id: Id, request: Request) -> Wallpaper:
        if _declared_size(request) > MAX_VIDEO_BYTES:
            raise TooLarge
        try:
            async with asyncio.timeout(UPLOAD_WITHIN):
                return _found(await service.intake.take(wallpaper_id, request.stream()), wallpaper_id)
        except TimeoutError:
            raise HTTPException(408, f"the picture has not come within {UPLOAD_WITHIN} s") from None
        except ClientDisconnect:
            raise HTTPException(400, "the picture broke off") from None

    @api.get("/wallpapers", response_model=list[WallpaperOut])
    async def list_of_user(
        user_id: Annotated[str, Query(min_length=1, max_length=200), AfterValidator(_storable)],
        state: State | None = None,
        before: Annotated[str | None, Query(pattern=f"^{PATTERN.pattern}$")] = None,
        most: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[Wallpaper]:
        """The latest first; `before` is the last id of the page before."""
        async with app.transaction() as tx:
            return await rows.of_user(tx, user_id, state=state, before=before, most=most)

    @api.get("/wallpapers/{wallpaper_id}", response_model=WallpaperOut)
    async def read(wallpaper_id: Id) -> Wallpaper:
        async with app.transaction() as tx:
            return _found(await rows.get(tx, wallpaper_id), wallpaper_id)

    @api.get("/health")
    async def health(response: Response) -> dict[str, Any]:
        down = await service.down()
        response.status_code = 503 if down else 200
        return {"reconciling": service.reconciliation.running, "down": down}

    return api


def _declared_size(request: Request) -> int:
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isdecimal() and len(declared) < 20 else 0


def _found(wallpaper: Wallpaper | None, wallpaper_id: str) -> Wallpaper:
    if wallpaper is None:
        raise HTTPException(404, f"there is no wallpaper {wallpaper_id}")
    return wallpaper
