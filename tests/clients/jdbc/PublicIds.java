import java.sql.DriverManager;

class PublicIds {
    public static void main(String[] arguments) throws Exception {
        try (var connection = DriverManager.getConnection(System.getenv("JDBC_DATABASE_URL"));
             var insert = connection.prepareStatement(
                 "INSERT INTO orders (item) VALUES (?) RETURNING snowflake_conceal(id, 'ord')");
             var find = connection.prepareStatement("SELECT item FROM orders WHERE id = snowflake_reveal(?, 'ord')")) {
            insert.setString(1, "tea");
            try (var row = insert.executeQuery()) {
                row.next();
                for (var publicId : new String[] {row.getString(1), "ord_no_such_id"}) {
                    find.setString(1, publicId);
                    try (var found = find.executeQuery()) {
                        System.out.println(found.next() ? found.getString(1) : "404");
                    }
                }
            }
        }
    }
}
