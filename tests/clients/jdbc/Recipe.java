import java.sql.DriverManager;
import java.util.List;

class Recipe {
    public static void main(String[] arguments) throws Exception {
        try (var connection = DriverManager.getConnection(System.getenv("JDBC_DATABASE_URL"));
             // The name, rather than RETURN_GENERATED_KEYS: that returns whole rows, and older drivers then send one at a time.
             var insert = connection.prepareStatement("INSERT INTO orders (item) VALUES (?)", new String[] {"id"})) {
            for (var item : List.of("tea", "coffee")) {
                insert.setString(1, item);
                insert.addBatch();
            }
            insert.executeBatch();
            try (var keys = insert.getGeneratedKeys()) {
                while (keys.next()) {
                    System.out.println(keys.getLong("id"));
                }
            }
        }
    }
}
