import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Driver of Kafka's own Java producer: `java -cp … Transaction.java transaction|idempotent bootstrap topic`. Prints
 * the exception's class, then its text on one line, then the milliseconds until it; "none" if there was no exception.
 */
public class Transaction {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[1]);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        boolean isTransactional = arguments[0].equals("transaction");
        if (isTransactional) {
            properties.put("transactional.id", arguments[2] + "-writer");
        } else {
            properties.put("enable.idempotence", "true");
        }
        String kind = "none";
        String text = "";
        long beganNs = System.nanoTime();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            beganNs = System.nanoTime();
            if (isTransactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            producer.send(new ProducerRecord<>(arguments[2], "value")).get();
        } catch (Exception error) {
            kind = error.getClass().getSimpleName();
            text = String.valueOf(error.getMessage()).replace('\n', ' ');
            if (error.getCause() != null) {
                text += "; caused by " + error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
            }
        }
        System.out.println(kind);
        System.out.println(text.replace('\n', ' '));
        System.out.println((System.nanoTime() - beganNs) / 1_000_000);
    }
}
