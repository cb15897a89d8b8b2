/** Ids drawn ahead, as strings. The next batch is drawn when half of one is used. */
export class IdPool {
  #database; #size; #maxAge; #next = null; #ids = []; #drawnAt = 0;

  /** `database` is a Pool or a Client of pg, `maxAge` is in milliseconds. */
  constructor(database, size = 1000, maxAge = 30_000) {
    [this.#database, this.#size, this.#maxAge] = [database, size, maxAge];
  }

  /** Returns an id that is at most `maxAge` old. Waits for the server only if no batch is ready. */
  async take() {
    while (this.#ids.length === 0 || performance.now() - this.#drawnAt >= this.#maxAge) {
      const next = (this.#next ??= this.#draw());
      try {
        const batch = await next;
        // Of several callers that wait, the first takes the batch over for all.
        if (this.#next === next) [this.#ids, this.#drawnAt] = batch;
      } finally {
        if (this.#next === next) this.#next = null;
      }
    }
    const id = this.#ids.pop();
    if (this.#next === null && this.#ids.length <= this.#size / 2) {
      this.#next = this.#draw();
      this.#next.catch(() => {}); // The call that waits for it gets the error.
    }
    return id;
  }

  async #draw() {
    const drawnAt = performance.now();
    const { rows } = await this.#database.query('SELECT snowflake_batch($1) AS id', [this.#size]);
    return [rows.map(({ id }) => id).reverse(), drawnAt];
  }
}
