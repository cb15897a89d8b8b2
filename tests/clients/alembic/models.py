"""The models that migrations/env.py names."""

from sqlalchemy import BigInteger, ForeignKey, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, server_default=text("snowflake_next()"))
    item: Mapped[str]


class Line(Base):
    __tablename__ = "lines"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, server_default=text("snowflake_next()"))
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id))
