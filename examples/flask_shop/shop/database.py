"""The table of orders, and the sessions in which requests and handlers read and write it."""

import os
from datetime import datetime

from sqlalchemy import DateTime, Engine, Index, create_engine, func, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker


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


URL = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")


def engine_for(url: str) -> Engine:
    return create_engine(make_url(url).set(drivername="postgresql+psycopg"))


engine = engine_for(URL)  # connects when it is first used
sessions = sessionmaker(engine, expire_on_commit=False)

if __name__ == "__main__":
    Base.metadata.create_all(engine)
