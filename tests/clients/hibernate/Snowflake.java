import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import org.hibernate.annotations.IdGeneratorType;

/** Marks an id that {@link SnowflakeGenerator} draws. */
@IdGeneratorType(SnowflakeGenerator.class)
@Retention(RetentionPolicy.RUNTIME)
public @interface Snowflake {}
