import os

from sqlalchemy import BigInteger, ForeignKey, create_engine, func
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, server_default=func.snowflake_next(monotonic=True))
    item: Mapped[str]
    lines: Mapped[list["Line"]] = relationship(back_populates="order")


class Line(Base):
    __tablename__ = "lines"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, server_default=func.snowflake_next(monotonic=True))
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id))  # of the type of what it refers to
    order: Mapped[Order] = relationship(back_populates="lines")


engine = create_engine(os.environ["DATABASE_URL"])
Base.metadata.create_all(engine)

with Session(engine) as session:
    orders = [Order(item=item, lines=[Line(), Line()]) for item in ["tea", "coffee", "cocoa"]]
    session.add_all(orders)
    session.commit()
    ids = [order.id for order in orders]
