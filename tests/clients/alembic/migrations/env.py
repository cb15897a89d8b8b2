"""Alembic's environment, as "alembic init" writes it, without its comments and its logging."""

import os

from alembic import context
from sqlalchemy import create_engine

from models import Base

with create_engine(os.environ["DATABASE_URL"]).connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata, compare_server_default=True)
    with context.begin_transaction():
        context.run_migrations()
