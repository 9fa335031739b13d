import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;

/**
 * Creates topics beyond the quota of its client id (KIP-599): arguments are the address and the client id. It may create two
 * partitions a second, and four at once. A request that a busy machine has held up until the one before was paid off is not
 * refused; then both are made again, with other topics.
 */
public class MutationQuota {
    private static final int ROUNDS = 30;
    private static final int PARTITIONS = 8;
    /** So long, at least, eight partitions are not paid off: (8 - 4) / 2 seconds, but for the measurement of time. */
    private static final long PAID_OFF_MS = 1_900;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("client.id", arguments[1]);
        properties.put("default.api.timeout.ms", "240000");
        try (Admin admin = Admin.create(properties)) {
            String refused = beyondTheQuota(admin);
            System.out.println("exists: " + admin.listTopics().names().get().contains(refused));
            create(admin, refused, 1, true);
            System.out.println("created java-refused by trying again");
        }
    }

    /** Create one topic, and the next one beyond the quota. Returns the name of the one that was refused. */
    private static String beyondTheQuota(Admin admin) throws Exception {
        for (int round = 0; ; round++) {
            String first = "java-first-" + round;
            String refused = "java-refused-" + round;
            long began = System.nanoTime();
            create(admin, first, PARTITIONS, round > 0);
            if (round == 0) {
                System.out.println("created java-first");
            }
            try {
                create(admin, refused, 1, false);
            } catch (ExecutionException error) {
                ThrottlingQuotaExceededException refusal = (ThrottlingQuotaExceededException) error.getCause();
                System.out.println("refused java-refused for a time: " + (refusal.throttleTimeMs() > 0));
                return refused;
            }
            if ((System.nanoTime() - began) / 1_000_000 < PAID_OFF_MS || round == ROUNDS) {
                System.out.println("created java-refused");
                return refused;
            }
        }
    }

    private static void create(Admin admin, String name, int partitions, boolean triesAgain) throws Exception {
        CreateTopicsOptions options = new CreateTopicsOptions().retryOnQuotaViolation(triesAgain);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1)), options).all().get();
    }
}
