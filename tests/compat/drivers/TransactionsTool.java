import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.TransactionsCommand;

/**
 * Driver of Kafka's own kafka-transactions.sh: `java -cp … TransactionsTool.java bootstrap command… , command…`. It runs
 * several commands in one process. Before each it prints `# command`, behind each `= status`.
 */
public class TransactionsTool {
    static class Ended extends RuntimeException {
        final int status;

        Ended(int status) {
            this.status = status;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        List<String> command = new ArrayList<>();
        for (int index = 1; index <= arguments.length; index++) {
            if (index < arguments.length && !arguments[index].equals(",")) {
                command.add(arguments[index]);
                continue;
            }
            System.out.println("# " + String.join(" ", command));
            command.addAll(0, List.of("--bootstrap-server", arguments[0]));
            try {
                TransactionsCommand.main(command.toArray(new String[0]));
            } catch (Ended ended) {
                System.out.println("= " + ended.status);
            }
            command.clear();
        }
        // The tool leaves its admin clients open: their threads would keep the process.
        Runtime.getRuntime().halt(0);
    }
}
