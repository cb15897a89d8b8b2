import java.util.Vector;
import org.eclipse.persistence.config.SessionCustomizer;
import org.eclipse.persistence.internal.databaseaccess.Accessor;
import org.eclipse.persistence.internal.sessions.AbstractSession;
import org.eclipse.persistence.sequencing.Sequence;
import org.eclipse.persistence.sessions.Record;
import org.eclipse.persistence.sessions.Session;

/** Draws ids before the INSERT, 50 with each statement. */
public class SnowflakeSequence extends Sequence implements SessionCustomizer {
    public SnowflakeSequence() {
        super("snowflake", 50);
    }

    @Override
    public void customize(Session session) {
        session.getLogin().addSequence(this);
    }

    @Override
    public Vector<?> getGeneratedVector(Accessor accessor, AbstractSession session, String name, int size) {
        var ids = new Vector<Object>();
        for (var row : (Vector<?>) session.executeSQL("SELECT snowflake_batch(" + size + ") AS id")) {
            ids.add(((Record) row).get("id"));
        }
        return ids;
    }

    @Override
    public Object getGeneratedValue(Accessor accessor, AbstractSession session, String name) {
        return getGeneratedVector(accessor, session, name, 1).get(0);
    }

    @Override
    public boolean shouldAcquireValueAfterInsert() {
        return false;
    }

    @Override
    public boolean shouldUseTransaction() {
        return false;
    }

    @Override
    public void onConnect() {}

    @Override
    public void onDisconnect() {}
}
