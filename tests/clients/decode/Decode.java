import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.LongFunction;

/** Decodes ids by the expressions of docs/decode.md, as engines/decode.py does for the engines in Python. */
class Decode {
    static final Map<String, LongFunction<Object>> EXPRESSIONS = new LinkedHashMap<>();

    static {
        // The test writes the expressions here.
    }

    static final DateTimeFormatter MILLISECONDS =
            DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").withZone(ZoneOffset.UTC);

    static String shown(Object value) {
        return value instanceof Instant ? MILLISECONDS.format((Instant) value) : String.valueOf(value);
    }

    public static void main(String[] arguments) throws Exception {
        var ids = Files.readAllLines(Path.of("ids.tsv"));
        for (var expression : EXPRESSIONS.entrySet()) {
            var of = expression.getKey().split("\t");
            if (of[1].startsWith("first id")) {
                System.out.println(expression.getKey() + "\t\t" + shown(expression.getValue().apply(0)));
                continue;
            }
            for (var line : ids) {
                var row = line.split("\t");
                if (row[0].equals(of[0])) {
                    var value = expression.getValue().apply(Long.parseLong(row[1]));
                    System.out.println(expression.getKey() + "\t" + row[1] + "\t" + shown(value));
                }
            }
        }
    }
}
