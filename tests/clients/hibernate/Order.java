import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import org.hibernate.annotations.ColumnDefault;

@Entity
@Table(name = "orders")
public class Order {
    @Id
    @Snowflake
    @ColumnDefault("snowflake_next()")
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
