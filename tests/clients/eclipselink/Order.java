import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.Id;
import javax.persistence.Table;

@Entity
@Table(name = "orders")
public class Order {
    @Id
    @GeneratedValue(generator = "snowflake")
    private Long id;

    private String item;

    protected Order() {}

    public Order(String item) {
        this.item = item;
    }

    public Long getId() {
        return id;
    }
}
