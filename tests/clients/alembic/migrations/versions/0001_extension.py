from alembic import op

revision = "0001"
down_revision = None


def upgrade():
    op.execute("CREATE EXTENSION IF NOT EXISTS snowflake_id")


def downgrade():
    pass  # DROP EXTENSION would forget which ids were drawn.
