import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import psycopg


class IdPool:
    """Ids drawn ahead. A thread draws the next batch when half of one is used."""

    def __init__(self, database, size=1000, max_age=30.0):
        self._database, self._size, self._max_age = database, size, max_age
        self._ids, self._drawn_at, self._next = deque(), 0.0, None
        self._lock, self._thread = threading.Lock(), ThreadPoolExecutor(1)

    def take(self):
        """Returns an id that is at most max_age seconds old. Waits only if no batch is ready."""
        with self._lock:
            while not self._ids or time.monotonic() - self._drawn_at >= self._max_age:
                batch, self._next = self._next or self._thread.submit(self._draw), None
                self._drawn_at, self._ids = batch.result()
            id = self._ids.popleft()
            if self._next is None and len(self._ids) <= self._size // 2:
                self._next = self._thread.submit(self._draw)
            return id

    def _draw(self):
        drawn_at = time.monotonic()
        with psycopg.connect(self._database, autocommit=True) as connection:
            rows = connection.execute("SELECT snowflake_batch(%s)", [self._size]).fetchall()
        return drawn_at, deque(id for (id,) in rows)
