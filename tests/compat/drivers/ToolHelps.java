import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other: `java -cp … ToolHelps.java "class arguments"…`. Prints "=== " and the
 * argument, then what that tool prints. Some tools end the process: the rest must be run by another one.
 */
public class ToolHelps {
    private static class Ended extends RuntimeException {}

    /** What the present tool prints. */
    private static class Printed extends OutputStream {
        final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        @Override
        public void write(int octet) throws IOException {
            bytes.write(octet);
        }

        void tell(String call, PrintStream out) {
            out.println("=== " + call);
            out.println(bytes);
            out.flush();
            bytes.reset();
        }
    }

    private static volatile String call;

    public static void main(String[] calls) {
        Exit.setExitProcedure((status, message) -> {
            throw new Ended();
        });
        PrintStream out = System.out;
        Printed printed = new Printed();
        // Set once, because Scala's console keeps the stream that it finds first.
        PrintStream stream = new PrintStream(printed, true);
        System.setOut(stream);
        System.setErr(stream);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            if (call != null) {
                printed.tell(call, out);
            }
            Runtime.getRuntime().halt(0);
        }));
        for (String next : calls) {
            call = next;
            String[] words = next.split(" ");
            Object arguments = Arrays.copyOfRange(words, 1, words.length);
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
            } catch (InvocationTargetException error) {
                if (!(error.getCause() instanceof Ended)) {
                    error.getCause().printStackTrace(stream);
                }
            } catch (ReflectiveOperationException | LinkageError error) {
                error.printStackTrace(stream);
            }
            stream.flush();
            printed.tell(next, out);
        }
        call = null;
        System.exit(0);
    }
}
