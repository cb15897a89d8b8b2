import java.util.ArrayList;
import java.util.Map;
import java.util.TreeSet;
import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.GenerationType;
import javax.persistence.Id;
import javax.persistence.Persistence;
import javax.persistence.PersistenceException;
import javax.persistence.Table;

/** Checks that each object has the id of its row, and that IDENTITY is refused. */
class Check {
    public static void main(String[] arguments) {
        var url = Map.of("javax.persistence.jdbc.url", System.getenv("JDBC_DATABASE_URL"));
        var factory = Persistence.createEntityManagerFactory("shop", url);
        var manager = factory.createEntityManager();

        manager.getTransaction().begin();
        var ids = new ArrayList<Long>();
        for (var n = 0; n < 1000; n++) {
            var order = new Order("item " + n);
            manager.persist(order);
            ids.add(order.getId());
        }
        manager.getTransaction().commit();
        check(new ArrayList<>(new TreeSet<>(ids)).equals(ids), "ids ascend in a transaction");
        manager.clear();
        for (var n = 0; n < 1000; n += 100) {
            var item = manager.createNativeQuery("SELECT item FROM orders WHERE id = " + ids.get(n)).getSingleResult();
            check(item.equals("item " + n), "each object has the id of its row");
            check(manager.find(Order.class, ids.get(n)).getId().equals(ids.get(n)), "an id finds its object");
        }
        factory.close();

        var other = Map.of("javax.persistence.jdbc.url", System.getenv("JDBC_DATABASE_URL"), "eclipselink.persistencexml", "META-INF/identity.xml");
        factory = Persistence.createEntityManagerFactory("identity", other);
        manager = factory.createEntityManager();
        manager.getTransaction().begin();
        try {
            manager.persist(new OrderWithIdentity());
            manager.flush();
            throw new AssertionError("IDENTITY works, contrary to the page");
        } catch (PersistenceException refusal) {
            check(refusal.getMessage().contains("lastval"), refusal.getMessage());
        }
        factory.close();
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}

@Entity
@Table(name = "orders")
class OrderWithIdentity {
    @Id
    @GeneratedValue(strategy = GenerationType.IDENTITY)
    Long id;

    String item = "milk";
}
