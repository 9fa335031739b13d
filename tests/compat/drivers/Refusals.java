import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;

/**
 * Driver of Kafka's own Java admin client: `java -cp … Refusals.java properties-file topic producer-id`. Asks for delegation
 * tokens in each way, then aborts the producer's transaction in partition 0 of the topic. Prints a line for each: the
 * exception's class, or "done", behind "answer: ".
 */
public class Refusals {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (var file = new java.io.FileReader(arguments[0])) {
            properties.load(file);
        }
        byte[] secret = {1, 2, 3};
        try (Admin admin = Admin.create(properties)) {
            List<Callable<KafkaFuture<?>>> calls = List.of(
                    () -> admin.createDelegationToken().delegationToken(),
                    () -> admin.renewDelegationToken(secret).expiryTimestamp(),
                    () -> admin.expireDelegationToken(secret).expiryTimestamp(),
                    () -> admin.describeDelegationToken().delegationTokens(),
                    () -> admin.abortTransaction(new AbortTransactionSpec(
                            new TopicPartition(arguments[1], 0), Long.parseLong(arguments[2]), (short) 0, 0)).all());
            for (Callable<KafkaFuture<?>> call : calls) {
                try {
                    call.call().get();
                    System.out.println("answer: done");
                } catch (java.util.concurrent.ExecutionException error) {
                    System.out.println("answer: " + error.getCause().getClass().getSimpleName());
                }
            }
        }
    }
}
