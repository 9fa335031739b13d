import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other, as standard input asks. A request is a number of words, then the class
 * of a tool and its arguments, each as `readUTF` reads it. The answer is whether this process goes on, which it does not if
 * the tool ends it, and the exit status; then what the tool wrote to standard output and to standard error, each behind its
 * number of bytes.
 */
public class ToolRunner {
    private static class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            this.status = status;
        }
    }

    /** What the present tool writes to one of its two outputs. */
    private static class Written extends OutputStream {
        private ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int octet) {
            bytes.write(octet);
        }

        @Override
        public synchronized void write(byte[] octets, int offset, int length) {
            bytes.write(octets, offset, length);
        }

        synchronized byte[] take() {
            byte[] taken = bytes.toByteArray();
            bytes = new ByteArrayOutputStream();
            return taken;
        }
    }

    private static final DataOutputStream ANSWERS = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
    private static final Written[] WRITTEN = {new Written(), new Written()};
    private static boolean isAnswered = true;

    public static void main(String[] none) throws IOException {
        Exit.Procedure end = (status, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            throw new Ended(status);
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        // Set once, because Scala's console and Kafka's log keep the streams that they find first.
        System.setOut(new PrintStream(WRITTEN[0], true));
        System.setErr(new PrintStream(WRITTEN[1], true));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            answer(false, 0);  // The status is unknown here.
            Runtime.getRuntime().halt(0);
        }));
        DataInputStream requests = new DataInputStream(System.in);
        try {
            while (true) {
                String[] arguments = new String[requests.readInt() - 1];
                String tool = requests.readUTF();
                for (int index = 0; index < arguments.length; index++) {
                    arguments[index] = requests.readUTF();
                }
                isAnswered = false;
                answer(true, status(tool, arguments));
            }
        } catch (EOFException nobodyAsks) {
            Runtime.getRuntime().halt(0);  // Tools leave threads of their clients behind.
        }
    }

    private static int status(String tool, String[] arguments) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Ended) {
                return ((Ended) error.getCause()).status;
            }
            error.getCause().printStackTrace();
        } catch (ReflectiveOperationException | LinkageError error) {
            error.printStackTrace();
        }
        return 1;
    }

    private static synchronized void answer(boolean goesOn, int status) {
        if (isAnswered) {
            return;
        }
        isAnswered = true;
        System.out.flush();
        System.err.flush();
        try {
            ANSWERS.writeBoolean(goesOn);
            ANSWERS.writeInt(status);
            for (Written each : WRITTEN) {
                byte[] bytes = each.take();
                ANSWERS.writeInt(bytes.length);
                ANSWERS.write(bytes);
            }
            ANSWERS.flush();
        } catch (IOException error) {
            Runtime.getRuntime().halt(1);  // Nobody waits for the answer.
        }
    }
}
