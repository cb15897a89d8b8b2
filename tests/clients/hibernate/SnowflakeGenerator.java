import java.util.ArrayDeque;
import java.util.EnumSet;
import java.util.Queue;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.generator.BeforeExecutionGenerator;
import org.hibernate.generator.EventType;
import org.hibernate.generator.EventTypeSets;

/** Draws ids before the INSERT, 50 with each statement. */
public class SnowflakeGenerator implements BeforeExecutionGenerator {
    private final Queue<Long> ids = new ArrayDeque<>();

    @Override
    public synchronized Object generate(
            SharedSessionContractImplementor session, Object owner, Object value, EventType event) {
        if (ids.isEmpty()) {
            // By JDBC, because a query of the session would flush it.
            session.doWork(connection -> {
                try (var statement = connection.createStatement();
                        var rows = statement.executeQuery("SELECT snowflake_batch(50)")) {
                    while (rows.next()) {
                        ids.add(rows.getLong(1));
                    }
                }
            });
        }
        return ids.remove();
    }

    @Override
    public EnumSet<EventType> getEventTypes() {
        return EventTypeSets.INSERT_ONLY;
    }
}
