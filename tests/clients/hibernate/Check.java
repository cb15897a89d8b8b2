import jakarta.persistence.Entity;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.Persistence;
import jakarta.persistence.Table;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.hibernate.annotations.ColumnDefault;
import org.hibernate.annotations.Generated;
import org.hibernate.cfg.Configuration;

/** Checks that each object has the id of its row, whether the program or the server draws it. */
class Check {
    public static void main(String[] arguments) {
        var url = Map.of("jakarta.persistence.jdbc.url", System.getenv("JDBC_DATABASE_URL"), "hibernate.hbm2ddl.auto", "update");
        EntityManagerFactory factory = Persistence.createEntityManagerFactory("shop", url);
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

        // The two other ways to an id, which the page names.
        var configuration = new Configuration().addAnnotatedClass(Late.class).addAnnotatedClass(WithIdentity.class);
        url.forEach(configuration::setProperty);
        factory = configuration.buildSessionFactory();
        manager = factory.createEntityManager();
        manager.getTransaction().begin();
        var late = List.of(new Late(), new Late());
        late.forEach(manager::persist);
        var identities = List.of(new WithIdentity(), new WithIdentity());
        identities.forEach(manager::persist);
        manager.getTransaction().commit();
        for (var id : List.of(late.get(0).id, late.get(1).id)) {
            check(stored(manager, "late", id) == 1, "RETURNING gives the default's value");
            check(id > ids.get(999), "the server has drawn it");
        }
        for (var identity : identities) {
            check(stored(manager, "orders", identity.id) == 1, "IDENTITY gives the default's value");
        }
        var columnDefault = "SELECT column_default FROM information_schema.columns WHERE (table_name, column_name) = ('late', 'id')";
        check(manager.createNativeQuery(columnDefault).getSingleResult().equals("snowflake_next()"), "the schema has the default");
        factory.close();
    }

    static long stored(EntityManager manager, String table, Long id) {
        return ((Number) manager.createNativeQuery("SELECT count(*) FROM " + table + " WHERE id = " + id).getSingleResult()).longValue();
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}

@Entity
@Table(name = "late")
class Late {
    @Id
    @Generated
    @ColumnDefault("snowflake_next()")
    Long id;

    String item = "milk";
}

@Entity
@Table(name = "orders")
class WithIdentity {
    @Id
    @GeneratedValue(strategy = GenerationType.IDENTITY)
    Long id;

    String item = "milk";
}
