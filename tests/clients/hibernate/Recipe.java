import jakarta.persistence.Persistence;
import java.util.List;
import java.util.Map;

class Recipe {
    public static void main(String[] arguments) {
        var url = Map.of("jakarta.persistence.jdbc.url", System.getenv("JDBC_DATABASE_URL"));
        var factory = Persistence.createEntityManagerFactory("shop", url);
        var manager = factory.createEntityManager();
        manager.getTransaction().begin();
        for (var item : List.of("tea", "coffee")) {
            var order = new Order(item);
            manager.persist(order);
            System.out.println(order.getId());
        }
        manager.getTransaction().commit();
        factory.close();
    }
}
