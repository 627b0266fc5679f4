"""The table of orders, and the sessions in which requests read and write it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from sqlalchemy import DateTime, Index, func, make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    state: Mapped[str] = mapped_column(default="placed")
    state_changed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())
    tracking_number: Mapped[str | None]

    __table_args__ = (Index("orders_by_state", "state", "id"),)


sessions = async_sessionmaker(expire_on_commit=False)


@asynccontextmanager
async def connected(server: object = None) -> AsyncIterator[None]:
    """A lifespan: sessions have an engine while the server runs."""
    engine = create_async_engine(make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+asyncpg"))
    sessions.configure(bind=engine)
    try:
        yield
    finally:
        await engine.dispose()


async def get_session() -> AsyncIterator[AsyncSession]:
    """One transaction per request: it commits when the path operation returns, and rolls back when that raises."""
    async with sessions.begin() as session:
        yield session


async def create_tables() -> None:
    async with connected(), sessions.begin() as session:
        await (await session.connection()).run_sync(Base.metadata.create_all)


if __name__ == "__main__":
    asyncio.run(create_tables())
