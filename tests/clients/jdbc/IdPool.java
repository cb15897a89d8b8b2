import java.io.StringReader;
import java.sql.DriverManager;
import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.postgresql.PGConnection;

/** Ids drawn ahead. A thread draws the next batch when half of one is used. */
class IdPool implements AutoCloseable {
    private record Batch(long[] ids, long drawnAt) {}

    private final ExecutorService thread = Executors.newSingleThreadExecutor();
    private final String url;
    private final int size;
    private final Duration maxAge;
    private Batch batch = new Batch(new long[0], 0);
    private int used;
    private Future<Batch> next;

    IdPool(String url, int size, Duration maxAge) {
        this.url = url;
        this.size = size;
        this.maxAge = maxAge;
    }

    /** Returns an id that is at most maxAge old. Waits only if no batch is ready. */
    synchronized long take() throws Exception {
        while (used == batch.ids.length || System.nanoTime() - batch.drawnAt >= maxAge.toNanos()) {
            var drawn = next != null ? next : thread.submit(this::draw);
            next = null;
            batch = drawn.get();
            used = 0;
        }
        var id = batch.ids[used++];
        if (next == null && batch.ids.length - used <= size / 2) {
            next = thread.submit(this::draw);
        }
        return id;
    }

    private Batch draw() throws Exception {
        var drawnAt = System.nanoTime();
        try (var connection = DriverManager.getConnection(url);
             var statement = connection.prepareStatement("SELECT snowflake_batch(?)")) {
            statement.setInt(1, size);
            var ids = new long[size];
            try (var rows = statement.executeQuery()) {
                for (var n = 0; rows.next(); n++) {
                    ids[n] = rows.getLong(1);
                }
            }
            return new Batch(ids, drawnAt);
        }
    }

    @Override
    public void close() {
        thread.shutdown();
    }

    /** Stores a question with 2,499 answers by one COPY. */
    public static void main(String[] arguments) throws Exception {
        var url = System.getenv("JDBC_DATABASE_URL");
        try (var pool = new IdPool(url, 1000, Duration.ofSeconds(30));
             var connection = DriverManager.getConnection(url)) {
            var question = pool.take();
            var rows = new StringBuilder(question + "\t\\N\ttea or coffee?\n");
            for (var n = 0; n < 2499; n++) {
                rows.append(pool.take() + "\t" + question + "\ttea\n");
            }
            var copy = connection.unwrap(PGConnection.class).getCopyAPI();
            copy.copyIn("COPY comments (id, parent, body) FROM STDIN", new StringReader(rows.toString()));
        }
    }
}
