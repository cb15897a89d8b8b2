import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Checks what a program that inserts many rows relies on, with reWriteBatchedInserts and without. */
class Check {
    static final List<String> ITEMS =
            IntStream.range(0, 1000).mapToObj(n -> "item " + n).collect(Collectors.toList());

    public static void main(String[] arguments) throws Exception {
        for (var rewrite : List.of(false, true)) {
            var options = "&reWriteBatchedInserts=" + rewrite;
            try (var connection = DriverManager.getConnection(System.getenv("JDBC_DATABASE_URL") + options)) {
                keysAreInTheOrderOfTheRows(connection);
                idsCanBeDrawnFirst(connection, rewrite);
                readsAndWritesLongs(connection);
            }
        }
        for (var mode : List.of("simple", "extended")) {
            asksInOneTransaction("&preferQueryMode=" + mode);
        }
    }

    /** One transaction asks as often as it likes, while others commit. */
    static void asksInOneTransaction(String options) throws SQLException {
        var url = System.getenv("JDBC_DATABASE_URL");
        try (var reader = DriverManager.getConnection(url + options);
                var writer = DriverManager.getConnection(url)) {
            reader.setAutoCommit(false);
            try (var commit = writer.prepareStatement("SELECT pg_current_xact_id()");
                    var read = reader.prepareStatement("SELECT count(*) FROM orders WHERE id <= snowflake_settled()")) {
                for (int n = 0; n < 1000; n++) {
                    commit.executeQuery().close();
                    read.executeQuery().close();
                }
            }
        }
    }

    static void keysAreInTheOrderOfTheRows(Connection connection) throws SQLException {
        var insert = "INSERT INTO orders (item) VALUES (?)";
        try (var statement = connection.prepareStatement(insert, new String[] {"id"})) {
            var ids = insert(statement);
            check(items(connection, ids).equals(ITEMS), "each key belongs to the row in its place");
            check(transactions(connection, ids) < ITEMS.size() / 10, "the rows are sent many at a time");
        }
        try (var statement = connection.prepareStatement(insert, Statement.RETURN_GENERATED_KEYS)) {
            var ids = insert(statement);
            check(items(connection, ids).equals(ITEMS), "each key belongs to the row in its place");
        }
    }

    /** Inserts a row for each item, and returns the keys. */
    static List<Long> insert(PreparedStatement statement) throws SQLException {
        for (var item : ITEMS) {
            statement.setString(1, item);
            statement.addBatch();
        }
        for (var count : statement.executeBatch()) {
            check(count == 1, "a batch that returns keys is not rewritten, so each row is counted");
        }
        var ids = new ArrayList<Long>();
        try (var keys = statement.getGeneratedKeys()) {
            while (keys.next()) {
                ids.add(keys.getLong("id"));
            }
        }
        return ids;
    }

    /** Returns in how many transactions rows were inserted. With autocommit, each round trip of a batch is a transaction. */
    static int transactions(Connection connection, List<Long> ids) throws SQLException {
        try (var select = connection.prepareStatement("SELECT count(DISTINCT xmin::text) FROM orders WHERE id = ANY (?)")) {
            select.setArray(1, connection.createArrayOf("bigint", ids.toArray()));
            try (var rows = select.executeQuery()) {
                rows.next();
                return rows.getInt(1);
            }
        }
    }

    static void idsCanBeDrawnFirst(Connection connection, boolean rewritten) throws SQLException {
        var ids = new ArrayList<Long>();
        try (var draw = connection.prepareStatement("SELECT snowflake_batch(?)")) {
            draw.setInt(1, ITEMS.size());
            try (var drawn = draw.executeQuery()) {
                while (drawn.next()) {
                    ids.add(drawn.getLong(1));
                }
            }
        }
        try (var insert = connection.prepareStatement("INSERT INTO orders (id, item) VALUES (?, ?)")) {
            for (var n = 0; n < ITEMS.size(); n++) {
                insert.setLong(1, ids.get(n));
                insert.setString(2, ITEMS.get(n));
                insert.addBatch();
            }
            for (var count : insert.executeBatch()) {
                check(count == (rewritten ? Statement.SUCCESS_NO_INFO : 1), "rewritten, as asked for");
            }
        }
        check(items(connection, ids).equals(ITEMS), "each row has the id that was drawn for it");
    }

    static void readsAndWritesLongs(Connection connection) throws SQLException {
        var sql = "INSERT INTO orders (item) VALUES ('sugar') RETURNING id, id::text AS text";
        try (var statement = connection.createStatement(); var row = statement.executeQuery(sql)) {
            row.next();
            var id = row.getLong("id");
            check(row.getObject("id").equals(id), "an id is a Long");
            check(row.getString("text").equals(String.valueOf(id)), "no digit is lost");
            check(items(connection, List.of(id)).equals(List.of("sugar")), "an id finds its row");
        }
    }

    /** Returns the items of these ids, in this order. */
    static List<String> items(Connection connection, List<Long> ids) throws SQLException {
        var sql = "SELECT item FROM unnest(?) WITH ORDINALITY AS wanted (id, n) JOIN orders USING (id) ORDER BY n";
        var items = new ArrayList<String>();
        try (var select = connection.prepareStatement(sql)) {
            select.setArray(1, connection.createArrayOf("bigint", ids.toArray()));
            try (var rows = select.executeQuery()) {
                while (rows.next()) {
                    items.add(rows.getString(1));
                }
            }
        }
        return items;
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
