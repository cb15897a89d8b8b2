import os

from sqlalchemy import BigInteger, Text, create_engine, func, select, type_coerce
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.types import TypeDecorator


class PublicId(TypeDecorator):
    """A bigint in the database, and a public id in the program."""

    impl = BigInteger
    cache_ok = True

    def __init__(self, prefix):
        super().__init__()
        self.prefix = prefix

    def process_bind_param(self, value, dialect):
        return value

    def bind_expression(self, value):
        return func.snowflake_reveal(type_coerce(value, Text), self.prefix, True)

    def column_expression(self, column):
        return func.snowflake_conceal(type_coerce(column, BigInteger), self.prefix)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[str] = mapped_column(PublicId("ord"), primary_key=True, server_default=func.snowflake_next())
    item: Mapped[str]


engine = create_engine(os.environ["DATABASE_URL"])

with Session(engine) as session:
    order = Order(item="tea")
    session.add(order)
    session.commit()
    public_id = order.id  # ord_...
    assert session.scalar(select(Order.item).where(Order.id == public_id)) == "tea"
