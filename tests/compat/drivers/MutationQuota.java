import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;

/** Creates topics beyond the quota of its client id (KIP-599): arguments are the address and the client id. */
public class MutationQuota {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("client.id", arguments[1]);
        properties.put("default.api.timeout.ms", "240000");
        CreateTopicsOptions once = new CreateTopicsOptions().retryOnQuotaViolation(false);
        try (Admin admin = Admin.create(properties)) {
            admin.createTopics(List.of(new NewTopic("java-first", 8, (short) 1)), once).all().get();
            System.out.println("created java-first");
            try {
                admin.createTopics(List.of(new NewTopic("java-refused", 1, (short) 1)), once).all().get();
                System.out.println("created java-refused");
            } catch (ExecutionException error) {
                ThrottlingQuotaExceededException refusal = (ThrottlingQuotaExceededException) error.getCause();
                System.out.println("refused java-refused for a time: " + (refusal.throttleTimeMs() > 0));
            }
            System.out.println("exists: " + admin.listTopics().names().get().contains("java-refused"));
            admin.createTopics(List.of(new NewTopic("java-refused", 1, (short) 1))).all().get();
            System.out.println("created java-refused by trying again");
        }
    }
}
